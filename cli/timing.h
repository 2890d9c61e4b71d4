/* The clock and the median. SPDX-License-Identifier: MIT */
#ifndef CLI_TIMING_H
#define CLI_TIMING_H

/* Seconds of a clock that only goes forward. */
double seconds_now(void);

/* The median; sorts the values. */
double median(double *values, int count);

#endif
