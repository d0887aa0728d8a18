/* MD5 of several texts side by side, one in each lane of a vector: a text alone is bound by the latency of its steps. For checksums
 * that stores compare, never as proof of who wrote something. Pure; any thread. */
#ifndef BASE_MD5_LANES_H
#define BASE_MD5_LANES_H

#include <stddef.h>
#include <stdint.h>

enum { MD5_LANES = 8, MD5_LANES_BYTES = 16 };

struct md5_lane {
    const void *bytes;
    size_t count;
    unsigned char sum[MD5_LANES_BYTES]; /* out */
};

void md5_lanes(struct md5_lane *lanes, size_t n); /* n at most MD5_LANES */

#endif
