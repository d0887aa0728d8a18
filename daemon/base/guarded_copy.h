/* Copies from a mapping of a file. Its pages may turn out not to be there, because the device fails or the file was cut off:
 * the kernel then raises SIGBUS, which ends the copy here and not the process.
 *
 * The first call installs a handler for SIGBUS, for good; a SIGBUS outside of a copy goes to whoever had it before. Any
 * thread: SIGBUS is unblocked in those that call, since the kernel ends a process that raises it while it is blocked. */
#ifndef BASE_GUARDED_COPY_H
#define BASE_GUARDED_COPY_H

#include <stddef.h>

/* copy_streaming_row(). Returns -1 when a page of the source could not be had; what is at dst is undefined then. */
int guarded_copy(void *dst, const void *src, size_t bytes);

#endif
