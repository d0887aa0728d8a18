#include "source/disk/image_file.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/quota.h"
#include "base/text.h"

/* Of the device, or of the one that it is a partition of. False: it is no loop device. */
static bool find_file(const char *sys, dev_t device, char path[PATH_MAX])
{
    static const char *const places[] = {"loop", "../loop"};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char name[PATH_MAX];
        snprintf(name, sizeof name, "%s/dev/block/%u:%u/%s/backing_file", sys, major(device), minor(device), places[i]);
        int fd = open(name, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        ssize_t length = read(fd, path, PATH_MAX - 1);
        close(fd);
        path[length > 0 ? length : 0] = '\0';
        path[strcspn(path, "\n")] = '\0';
        return true;
    }
    return false;
}

int image_file_check(const char *sys, dev_t device, struct error *error)
{
    char path[PATH_MAX], shown[TEXT_NAME_CHARS];
    struct stat file;
    if (!find_file(sys, device, path))
        return 0;
    text_escape(path, strlen(path), shown);
    if (stat(path, &file) < 0)
        return fail(error, ERROR_FAILED_PRECONDITION, "NOT_IMMUTABLE",
                    "the image that it is in, %s, cannot be seen from here, so that nothing says who may write to it",
                    shown);
    if (!quota_is_privileged(file.st_uid))
        return fail(error, ERROR_FAILED_PRECONDITION, "NOT_IMMUTABLE",
                    "the image that it is in, %s, belongs to user %u, who may write to it", shown, (unsigned)file.st_uid);
    if (file.st_mode & (S_IWGRP | S_IWOTH))
        return fail(error, ERROR_FAILED_PRECONDITION, "NOT_IMMUTABLE",
                    "the image that it is in, %s, may be written to by others than its owner (mode %04o)", shown,
                    (unsigned)file.st_mode & 07777);
    return 0;
}
