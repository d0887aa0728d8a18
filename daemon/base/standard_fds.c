#include "base/standard_fds.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

void standard_fds_reserve(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0)
            continue;
        int flags = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY; /* EBADF for who reads or prints, as if it were closed */
        if (open("/dev/null", flags) != fd)
            abort(); /* the lowest free number is what open() returns */
    }
}
