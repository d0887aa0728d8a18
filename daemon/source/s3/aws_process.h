/* credential_process of a profile: a command of the user's that prints keys as JSON. Run without a shell, as the other tools
 * do; its words are split as a shell would split them. Blocks up to a minute; any thread but the loop's. */
#ifndef SOURCE_AWS_PROCESS_H
#define SOURCE_AWS_PROCESS_H

#include "base/cancel.h"
#include "source/s3/aws_keys.h"

int aws_process_run(const char *command, const struct cancel *cancel, struct aws_keys *keys, struct error *error);

/* "a 'b c' \"d\" e\\ f" -> {"a", "b c", "d", "e f", NULL}; NULL when a quote is open or there is no word. One block to free.
 */
char **aws_process_split(const char *command);

#endif
