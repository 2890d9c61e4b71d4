/* The table of kernels in memory. SPDX-License-Identifier: MIT */
#include "cuda/table.h"
#include "support_runner.h"

/* Handles that are never followed. */
union handle {
	uint64_t number;
	void *pointer;
};

static void *address(uint64_t number)
{
	return (union handle){.number = number}.pointer;
}

static void count_unloads(void *user, CUmodule module)
{
	*(uint64_t *)user += (union handle){.pointer = module}.number;
}

static void the_table_grows(void)
{
	enum { KEYS = 5000 };
	struct ek_table *table = ek_table_create();
	uint64_t sum = 0, unloaded = 0;
	for (uint64_t i = 1; i <= KEYS; i++) {
		EXPECT(!ek_table_find(table, i << 40), "key %d is there before", (int)i);
		EXPECT(ek_table_add(table, i << 40, address(i), address(2 * i)), "no memory");
		sum += 2 * i;
	}
	for (uint64_t i = 1; i <= KEYS; i++)
		EXPECT(ek_table_find(table, i << 40) == address(i), "key %d is another's", (int)i);
	EXPECT(!ek_table_find(table, 1), "a key that was never added is there");
	ek_table_destroy(table, count_unloads, &unloaded);
	EXPECT(unloaded == sum, "not each module is unloaded once");
}

int main(int argc, char **argv)
{
	test_begin(argc, argv);
	TEST(the_table_grows);
	return test_end();
}
