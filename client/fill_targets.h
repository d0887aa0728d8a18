/* A load into targets of the caller, as tc_load_targets() has it, of what a question says beyond its options. Blocks. */
#ifndef CLIENT_FILL_TARGETS_H
#define CLIENT_FILL_TARGETS_H

#include "load_stream.h"

/* Fills in the question's targets and device. json may be NULL; else the caller frees it. */
int fill_targets(struct tc_client *client, struct load_question *question, const struct tc_targets *targets, char **json,
                 struct error *error);

#endif
