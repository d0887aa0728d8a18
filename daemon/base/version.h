/* Which build this is. */
#ifndef BASE_VERSION_H
#define BASE_VERSION_H

void version_set_commit(const char *commit); /* first in main(); "" = unknown */
const char *version_text(void);              /* "0.1.0+885bf01d", "0.1.0" without a commit */

#endif
