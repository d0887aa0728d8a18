/* Names and widths of the protocol's dtypes. Pure. */
#ifndef CLIENT_DTYPE_NAME_H
#define CLIENT_DTYPE_NAME_H

#include <stdint.h>

/* NULL for a number that is no dtype. */
const char *dtype_name_of(int dtype, uint64_t *bits);

#endif
