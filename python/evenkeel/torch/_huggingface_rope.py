"""Hugging Face's apply_rotary_pos_emb: which modeling files have which, for the attention classes in them.

A name stands for one formula in every version of transformers that has the file; replace compares the two before it
relies on that. _register.py reads the table. SPDX-License-Identifier: MIT
"""

from evenkeel.torch._rope_spec import RopeSpec, calls_rope

# q * cos + rotate_half(q) * sin, of as many leading elements as cos has columns; both halves of these are the same.
_HALVES = """
    afmoe apertus arcee aria axk1 axk2 bamba bitnet chameleon csm cwm dbrx deepseek_ocr2 deepseek_v3 deepseek_v32
    dia diffllama doge dots1 embedding_gemma2 emu3 esmc eurobert exaone4 exaone_moe falcon falcon_h1 flint gemma
    gemma2 gemma3 glm4_moe glm4_moe_lite gpt_neox gpt_neox_japanese gradium_phonon_tts granite granite4_vision
    granite_swa granitemoe granitemoe_swa granitemoehybrid granitemoeshared gte higgs_audio_v2 hrm_text
    hunyuan_v1_dense hunyuan_v1_moe hy_v3 hy_v4 hyperclovax idefics jais2 jetmoe jina_embeddings_v3 kolibri1
    kyutai_speech_to_text laguna lasr lfm2 lfm2_moe llama mellum mimi mimo_v2_flash minicpm3 minimax minimax_m2
    ministral ministral3 mistral mistral4 mixtral mllama molmo2 moshi nemotron neucodec nomic_bert olmoe persimmon
    phi phi3 phi4_multimodal phimoe pocket_tts pocket_tts_audio_tokenizer qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next
    recurrent_gemma seed_oss smollm3 solar_open stablelm starcoder2 t5gemma t5gemma2 timesfm2_5 ultrabert
    unlimited_ocr vaultgemma voxtral_realtime xcodec2 youtu zamba2 zaya
"""

# The same, with results of the dtype of q where cos and sin are wider.
_HALVES_OF_X = """
    beam esm evolla flex_olmo modernbert modernbert_decoder olmo olmo2 olmo3 olmo_hybrid
"""

# Of neighbours: q[0] and q[1] turn by the first column of cos and sin. Their second half is not read.
_PAIRS = """
    glm glm4 helium moonshine moonshine_streaming
"""

_PAIRS_OF_X = """
    ernie4_5 ernie4_5_moe
"""

_SPECS = (
    (_HALVES, RopeSpec()),
    (_HALVES_OF_X, RopeSpec(result_dtype="x")),
    (_PAIRS, RopeSpec(interleaved=True)),
    (_PAIRS_OF_X, RopeSpec(interleaved=True, result_dtype="x")),
    ("gpt_oss", RopeSpec(has_half_tables=True)),
)
TABLE = {name: spec for names, spec in _SPECS for name in names.split()}


def spec_of(cls: type) -> RopeSpec | None:
    """Of a class whose forward calls the function; None where its file is not in the table."""
    package, _, name = cls.__module__.rpartition(".modeling_")
    spec = TABLE.get(name) if package.startswith("transformers.") else None
    return spec if spec is not None and calls_rope(cls) else None
