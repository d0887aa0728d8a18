/* Units of work: STORE/claims/unit_N says who has unit N until when, or that it is done. What such a claim says; pure, but for the
 * clock and chance. */
#ifndef CLI_ACTIVATION_CLAIM_H
#define CLI_ACTIVATION_CLAIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define ACTIVATION_CLAIMS "claims" /* the folder */
enum { ACTIVATION_CLAIM_MAX_BYTES = 8192, ACTIVATION_CLAIM_NAME_CHARS = 48 };

struct activation_claim {
    char owner[ACTIVATION_CLAIM_MAX_BYTES];
    uint64_t until_ms; /* of the wall clock: other hosts are to read it */
    bool is_done;
};

uint64_t activation_claim_now_ms(void);
void activation_claim_name(uint64_t unit, char name[ACTIVATION_CLAIM_NAME_CHARS]);
/* False: it is the name of none. */
bool activation_claim_parse_name(const char *name, uint64_t *unit);
/* Leaves out what it does not find: a claim of nobody, whose lease has passed. */
void activation_claim_parse(const char *text, size_t length, struct activation_claim *claim);
/* Different from every other, so that its writer knows it again. malloced; NULL: the owner's name is too long. */
char *activation_claim_print(const char *owner, uint64_t lease_ms, bool is_done, size_t *length, struct error *error);

int activation_claim_fail_nobody(uint64_t unit, struct error *error);
int activation_claim_fail_owner(const struct activation_claim *claim, uint64_t unit, struct error *error);

#endif
