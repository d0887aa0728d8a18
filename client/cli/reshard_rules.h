/* The rules by which the earlier tool of topology.json splits tensors: parts of their names. Pure. */
#ifndef CLI_RESHARD_RULES_H
#define CLI_RESHARD_RULES_H

#include <stddef.h>

/* The dimension of a tensor of that rank that is cut, or -1: every rank has all of it. */
int reshard_rules_dimension(const char *name, size_t name_length, size_t rank);

#endif
