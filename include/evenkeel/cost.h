/* What an op costs: FLOPs and bytes, kernel by kernel, as formulas and as numbers. Nothing is run, and no
 * context is needed. docs/cost.md says what is counted and why; `evenkeel explain` prints it. evenkeel.h includes this.
 *
 *     ek_cost cost = {.size = sizeof cost};
 *     ek_norm_cost(&(ek_cost_args){.size = sizeof(ek_cost_args), .norm = EK_LAYER_NORM, .pass = EK_FORWARD,
 *         .variant = EK_EVENKEEL, .device = EK_CUDA, .dtype = EK_BF16, .batch_size = 8, .seq_len = 2048,
 *         .hidden_size = 4096}, &cost);
 *     printf("%s bytes read\n", cost.total.symbols.read_bytes);
 *
 * SPDX-License-Identifier: MIT */
#ifndef EVENKEEL_COST_H
#define EVENKEEL_COST_H

#include "../evenkeel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ek_pass {
	EK_FORWARD = 1,
	EK_BACKWARD = 2,
	EK_STEP = 3 /* of a block: forward, then backward */
} ek_pass;

typedef enum ek_variant {
	EK_REFERENCE = 1, /* the decomposition: one kernel after the other, each reading and writing memory */
	EK_PYTORCH = 2,   /* what PyTorch 2.11 launches on a GPU */
	EK_EVENKEEL = 3,  /* what this library does on `device` */
	EK_COMPILED = 4   /* of a block: what torch.compile launches on a GPU, by the rules of its fusion */
} ek_variant;

/* Where a block has its norms. */
typedef enum ek_block_order {
	EK_REORDERED = 1, /* h = x + norm(attention(x)), out = h + norm(ffn(h)) */
	EK_PRE_NORM = 2   /* h = x + attention(norm(x)), out = h + ffn(norm(h)) */
} ek_block_order;

/* Operands that a call goes without. */
typedef enum ek_absent {
	EK_NO_WEIGHT = 1,     /* backward: no dweight either */
	EK_NO_BIAS = 2,       /* backward: no dbias */
	EK_NO_STATISTICS = 4, /* EK_EVENKEEL: forward returns none, backward recomputes them */
	EK_NO_MEAN_LO = 8,    /* EK_EVENKEEL: mean and rstd alone */
	EK_NO_DGATE = 16      /* ek_glu_cost, EK_EVENKEEL: backward sums the gradients of biases alone */
} ek_absent;

/* Operands in addition to those of a plain norm. */
typedef enum ek_with {
	EK_WITH_RESIDUAL = 1, /* h = x + residual, y = norm(h), both written; backward: dh, and dresidual */
	EK_WITH_X_BIAS = 2,   /* added to x; backward: dx_bias */
	EK_WITH_RESIDUAL_AFTER = 4, /* y = norm(x) + residual_after; not with EK_WITH_RESIDUAL */
	EK_WITH_GATE =
		8, /* y = norm(x) * activation(gate), or of gate_first; with an activation, and none of the others */
	EK_WITH_VALUE =
		16, /* of a gated activation: y = activation(gate) * value; else y = activation(gate) */
	EK_WITH_BIASES = 32,    /* gate_bias and value_bias; q_bias and k_bias; of a block, in all products */
	EK_WITH_QK_NORM = 64,   /* of a block: RMSNorm of each head of q and k before the turn */
	EK_WITH_PACKED = 256,   /* of a block: q, k and v are one product, gate and value are another */
	EK_WITH_POSITIONS = 128 /* of RoPE: position ids */
} ek_with;

typedef struct ek_cost_args {
	size_t size; /* sizeof(ek_cost_args) */
	ek_norm norm;
	ek_pass pass;
	ek_variant variant;
	ek_device device;   /* of EK_EVENKEEL: the CPU does in one call what takes a GPU several kernels */
	int64_t batch_size; /* 1 and more */
	int64_t seq_len;    /* 1 and more; batch_size * seq_len are the rows */
	int64_t hidden_size;
	ek_dtype dtype;
	ek_dtype weight_dtype; /* 0: dtype; EK_EVENKEEL: as of ek_norm_forward */
	/* EK_REFERENCE. Casts at both ends where compute_dtype is not dtype (0: dtype). Statistics, and the tensors between
	 * the casts, are counted at dtype's width, as analyses by hand do; these two count them as they are. */
	ek_dtype compute_dtype;
	ek_dtype stats_dtype;        /* 0: dtype */
	ek_dtype intermediate_dtype; /* 0: dtype */
	int absent;                  /* EK_NO_WEIGHT | …; 0: all operands are there */
	/* EK_EVENKEEL on EK_CUDA: how many partial sums a GPU writes depends on these. 0: an H200 (90, 132). */
	int arch; /* compute capability, 90 is 9.0 */
	int multiprocessors;

	/* Added after 0.1. */
	int with; /* EK_WITH_RESIDUAL | …; 0: a plain norm */
	ek_dtype
		h_dtype; /* of residuals, h and its gradient; 0: dtype. Where it is, dx serves as dresidual */
	ek_dtype y_dtype;        /* of y and dy; 0: dtype */
	ek_dtype gradient_dtype; /* of dweight, dbias and dx_bias; 0: weight_dtype */
	int weight_offset;       /* as of ek_norm_forward */
	ek_rounding rounding;
	ek_activation activation; /* of the norm's result or of the gate; not with EK_WITH_RESIDUAL_AFTER */
	int gate_first;           /* as of ek_norm_forward */
	/* As of ek_norm_forward: a divisor of hidden_size; 0: hidden_size. EK_PYTORCH is counted as if its kernels took
	 * groups for rows, with the weights of all: what the fewest kernels would move. */
	int64_t group_cols;

	/* Of gated activations, RoPE and blocks. */
	int64_t ffn_size;     /* columns of the gate; 1 … EK_MAX_COLS */
	int64_t heads;        /* of q */
	int64_t k_heads;      /* of k and v; 0: heads */
	int64_t head_dim;     /* 1 … EK_MAX_HEAD_DIM; of a block 0: hidden_size / heads */
	int64_t rotary_dim;   /* even, at most head_dim; 0: head_dim */
	ek_dtype table_dtype; /* of cos and sin; 0: EK_F32, with EK_F64 that */
	ek_block_order order; /* of a block */
	int causal;           /* of a block's attention: 1: half of the pairs of tokens */
} ek_cost_args;

#define EK_COST_TEXT 1024
#define EK_COST_KERNELS 12
#define EK_COST_SYMBOLS 16

typedef struct ek_cost_kernel {
	char name[96];
	const char *type; /* "cast", "reduction", "elementwise", "fused"; "reference"; "total" */
	char origin[192]; /* module -> function -> native op -> kernel */
	int64_t flops, read_bytes, write_bytes;
	/* The same as formulas: "3*batch_size*seq_len*hidden_size*a_bytes + …". */
	struct {
		char flops[EK_COST_TEXT], read_bytes[EK_COST_TEXT], write_bytes[EK_COST_TEXT];
	} symbols;
} ek_cost_kernel;

typedef struct ek_cost_symbol {
	const char *name;   /* "batch_size" */
	const char *origin; /* "input.shape[0]" */
	int64_t value;
} ek_cost_symbol;

typedef struct ek_cost {
	size_t size; /* sizeof(ek_cost) */
	int kernel_count;
	ek_cost_kernel kernels[EK_COST_KERNELS]; /* in the order in which they run */
	ek_cost_kernel total;
	int symbol_count; /* those that the formulas use */
	ek_cost_symbol symbols[EK_COST_SYMBOLS];
} ek_cost;

/* Fills cost. Bytes are those that a kernel needs from memory: every byte of a tensor once, however often it is looked
 * at. EK_ERROR_ARGUMENT also where a number does not fit 64 bits. */
EK_API ek_status ek_norm_cost(const ek_cost_args *args, ek_cost *cost);

/* Kernels of ops that may have more of them than an ek_cost has room for: in memory of the caller's. */
typedef struct ek_cost_list {
	size_t size;             /* sizeof(ek_cost_list) */
	ek_cost_kernel *kernels; /* room for most_kernels, in the order in which they run */
	int most_kernels;
	int kernel_count;
	ek_cost_kernel total;
	int symbol_count;
	ek_cost_symbol symbols[EK_COST_SYMBOLS];
} ek_cost_list;

/* As ek_norm_cost, of gated activations: batch_size * seq_len rows of ffn_size columns, an activation, EK_WITH_VALUE,
 * EK_WITH_BIASES. A function of one number (exp, tanh, erf) counts one FLOP, as analyses by hand have it. */
EK_API ek_status ek_glu_cost(const ek_cost_args *args, ek_cost_list *cost);
/* Of RoPE on q and k: heads, k_heads, head_dim, rotary_dim, EK_WITH_BIASES, EK_WITH_POSITIONS; norm: 0, or that of each head
 * before the turn, with weights but for EK_NO_WEIGHT. All sequences share the tables, of which each row is read once. */
EK_API ek_status ek_rope_cost(const ek_cost_args *args, ek_cost_list *cost);

/* Of a transformer block, kernel by kernel, EK_PYTORCH, EK_EVENKEEL or EK_COMPILED, forward, backward or EK_STEP: order, norm (of
 * hidden_size columns, absent operands as of a norm), heads, k_heads, head_dim, rotary_dim, ffn_size, activation, EK_WITH_VALUE,
 * EK_WITH_BIASES, EK_WITH_QK_NORM, EK_WITH_PACKED, causal. Kernels have their place in front of their name
 * ("ffn_norm/backward"); products have the type "product", attention "attention". EK_BLOCK_KERNELS are enough. EK_COMPILED is an
 * estimate: what inductor fuses by its rules, and not what a version of it launched. */
enum { EK_BLOCK_KERNELS = 128 };
EK_API ek_status ek_block_cost(const ek_cost_args *args, ek_cost_list *cost);

/* The cost of an expression of references, such as
 *     2*${torch.nn.functional.layer_norm}(batch_size, seq_len, hidden_size)
 *     + ${torch.nn.functional.rms_norm}(batch_size, seq_len + 1, 4*hidden_size)
 * Arguments are expressions of the same kind; a reference in one stands for what is being counted (FLOPs, bytes read or
 * bytes written). Of args it takes sizes, dtypes and absent operands. cost->kernels are the references, as they are
 * first met. A text that is wrong gets a message of three lines: what is wrong, the text, a caret under the place. */
EK_API ek_status ek_reference_cost(const char *text, const ek_cost_args *args, ek_cost *cost);

/* The names that references may have; NULL past the last. */
EK_API const char *ek_reference_name(int index);

#ifdef __cplusplus
}
#endif
#endif
