/* Constants in targets of a client: what no file has. Written by the worker that ends the run, when every byte of the files
 * is in place. */
#ifndef EXECUTE_FILLS_H
#define EXECUTE_FILLS_H

#include "execute/destination.h"

/* Writes all fills of the mapping; destination->filled_bytes counts them. When it returns they are in place. */
int fills_write(struct destination *destination, const struct mapping *mapping, struct error *error);

#endif
