/* Says in words which elements of a cover are left out: the box of indexes around one of them, as large as it can be. For
 * messages only. Pure. */
#ifndef RESOLVE_TARGET_LACK_H
#define RESOLVE_TARGET_LACK_H

#include <stdbool.h>
#include <stdint.h>

#include "resolve/strided.h"
#include "resolve/target.h"

enum { TARGET_LACK_CHARS = 256 };

/* `at`: where the cover's element with all indexes 0 is, `gap`: a byte of it that is not written, both where `is_written`
 * asks. Writes "4:5, 0:6" to `out`, cut where it is too long. */
void target_find_lack(const struct target *cover, uint64_t at, uint64_t gap,
                      bool (*is_written)(void *data, const struct strided_box *box), void *data,
                      char out[TARGET_LACK_CHARS]);

#endif
