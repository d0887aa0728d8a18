/* A program that is started without descriptor 0, 1 or 2 gets its next socket or file under that number, and what it prints
 * goes there. To be called first in main(): each that is missing becomes one that cannot be used. */
#ifndef BASE_STANDARD_FDS_H
#define BASE_STANDARD_FDS_H

void standard_fds_reserve(void);

#endif
