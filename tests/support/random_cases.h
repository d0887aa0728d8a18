/* How many random cases a test tries: all in a plain run, a quarter where a sanitizer makes each cost several times as much. */
#ifndef SUPPORT_RANDOM_CASES_H
#define SUPPORT_RANDOM_CASES_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RANDOM_CASES(n) ((n) / 4)
#else
#define RANDOM_CASES(n) (n)
#endif

#endif
