/* What tests may ask of the fake NCCL, a libnccl.so.2 for communicators of one process on the GPUs of the fake CUDA. Its
 * functions have the prototypes of the real <nccl.h>, or it would not compile.
 *
 * It says on standard error that it is loaded, and does nothing but fail with ncclSystemError unless
 * TENSORCAST_TEST_FAKE_NCCL=1 is in the environment. For processes that tests start, TENSORCAST_TEST_FAKE_NCCL_FAIL is
 * FUNCTION:NTH:CODE, see fake_nccl_fail(). What a real one only documents is enforced: misuse ends the process. Any thread.
 */
#ifndef FAKE_NCCL_H
#define FAKE_NCCL_H

#include <stddef.h>
#include <stdint.h>

void fake_nccl_reset(void); /* no rule, all counts at 0; no communicator may be left */
/* From now on the nth (1 = the next) call of that function returns the code. Or, of "async": the nth question for a
 * communicator's error is answered with the code, and all later ones about it; "init", "kernel" (what a communicator
 * launches on its stream for one group) and "finalize": the nth one never ends unless it is aborted; the code is not looked
 * at. One rule at a time. */
void fake_nccl_fail(const char *function, uint64_t nth, int code);

struct fake_nccl_counts {
    size_t live, made, destroyed, aborted; /* communicators */
    size_t sends, broadcasts;              /* broadcasts: once per rank */
    uint64_t bytes;                        /* that arrived at a rank */
};
struct fake_nccl_counts fake_nccl_counts(void);

#endif
