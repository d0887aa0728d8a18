/* The books on what was read of one version of a part file: which ranges, and the CRC of each. A load from the file
 * adds to the same ledger, so bytes that several loads share are summed once and for all of them.
 *
 *     |prefix|  range  | range |   range   |      in offset order: crc_combine() gives that of the whole
 *
 * As long as ranges are equal or disjoint, every byte that was ever delivered from this file is in the one sum. A range that
 * came twice with different sums is in dispute: what was delivered of it may be wrong, and the load that took it reads it
 * again. Pure; a ledger is its caller's to lock. */
#ifndef EXECUTE_LEDGER_H
#define EXECUTE_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/checksum.h"

struct ledger_range {
    uint64_t offset, bytes, crc;
    bool disputed;
};

struct ledger {
    enum checksum_kind kind; /* CHECKSUM_NONE: nothing is summed */
    struct ledger_range *ranges;
    size_t n_ranges, room;
    size_t n_sorted; /* the first ones are in order */
    bool overlaps;   /* ranges with other edges: what was delivered from which is not known */
};

struct ledger_sum {
    uint64_t crc;           /* of the whole, when nothing is missing */
    uint64_t missing_bytes; /* not read so far */
    bool overlaps;
};

void ledger_fini(struct ledger *ledger);
struct ledger ledger_copy(const struct ledger *ledger); /* ledger_fini() it; empty when there is no memory */

/* Where there is no memory for it, the range is missing as if it had not been read: it never counts as compared. */
void ledger_add(struct ledger *ledger, uint64_t offset, uint64_t bytes, uint64_t crc);
/* The range was read once more: this is its sum now, and if that is another one, it is in dispute. */
void ledger_correct(struct ledger *ledger, uint64_t offset, uint64_t bytes, uint64_t crc);

/* Sorts, then sums the file from its prefix, which another load has read, to its end. */
struct ledger_sum ledger_sum(struct ledger *ledger, uint64_t prefix_bytes, uint64_t prefix_crc, uint64_t file_bytes);
/* The first bytes of [from, end) that are in no range; false when there are none. Sorts, too. */
bool ledger_find_gap(struct ledger *ledger, uint64_t from, uint64_t end, uint64_t *lo, uint64_t *hi);
/* The sum of [lo, hi) where ranges that are in no dispute tile it; false when none do. Sorts, too. */
bool ledger_sum_part(struct ledger *ledger, uint64_t lo, uint64_t hi, uint64_t *crc);

#endif
