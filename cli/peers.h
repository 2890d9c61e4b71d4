/* The library that evenkeel is measured beside: oneDNN, opened at run time if it is there.
 * SPDX-License-Identifier: MIT */
#ifndef CLI_PEERS_H
#define CLI_PEERS_H

#include <stdbool.h>
#include <stdint.h>

struct cell;
struct peer;

/* Opens oneDNN with that many threads; NULL if it is not there. */
struct peer *peer_open(int threads);
void peer_close(struct peer *peer);
/* "oneDNN 3.2". */
const char *peer_name(const struct peer *peer);

/* Makes its primitive for the cell and compares its result on the first set with what the op has written
 * there. false: it cannot compute the cell, or computes something else. */
bool peer_prepare(struct peer *peer, const struct cell *cell);
void peer_call(struct peer *peer, int64_t set);
void peer_release(struct peer *peer);

#endif
