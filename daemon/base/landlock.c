#include "base/landlock.h"

#include <errno.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Newer than the kernel headers that we build with. */
#define FS_REFER (1ull << 13)
#define FS_TRUNCATE (1ull << 14)

enum { ABI_REFER = 2, ABI_TRUNCATE = 3 };

#define OF_FILES (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_READ_FILE | FS_TRUNCATE)

int landlock_abi(void)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    return abi > 0 ? (int)abi : 0;
}

static uint64_t access_of(unsigned rights)
{
    static const struct {
        unsigned right;
        uint64_t access;
    } table[] = {
        {LANDLOCK_READ, LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR},
        {LANDLOCK_WRITE, LANDLOCK_ACCESS_FS_WRITE_FILE | FS_TRUNCATE},
        {LANDLOCK_CREATE, LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SYM},
        {LANDLOCK_FOLDERS, LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_MAKE_DIR | FS_REFER},
        {LANDLOCK_SOCKETS, LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_SOCK},
        {LANDLOCK_EXECUTE, LANDLOCK_ACCESS_FS_EXECUTE},
        {LANDLOCK_DEVICES, LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO},
    };
    uint64_t access = 0;
    int abi = landlock_abi();
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        access |= rights & table[i].right ? table[i].access : 0;
    access &= abi < ABI_REFER ? ~FS_REFER : ~0ull;
    return access & (abi < ABI_TRUNCATE ? ~FS_TRUNCATE : ~0ull);
}

int landlock_create(unsigned confined, struct error *error)
{
    struct landlock_ruleset_attr attributes = {.handled_access_fs = access_of(confined)};
    int rules = (int)syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes.handled_access_fs, 0);
    return rules >= 0 ? rules : fail_errno(error, errno, "Landlock: cannot make a set of rules");
}

int landlock_allow(int rules, int path_fd, unsigned rights, struct error *error)
{
    struct stat status;
    struct landlock_path_beneath_attr rule = {.allowed_access = access_of(rights), .parent_fd = path_fd};
    if (fstat(path_fd, &status) < 0)
        return fail_errno(error, errno, "Landlock: cannot look at a file");
    if (!S_ISDIR(status.st_mode))
        rule.allowed_access &= OF_FILES;
    if (!rule.allowed_access || syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0)
        return 0;
    return fail_errno(error, errno, "Landlock: cannot add a rule");
}

int landlock_enforce(int rules, struct error *error)
{
    int failed = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_landlock_restrict_self, rules, 0) < 0
                     ? fail_errno(error, errno, "Landlock: cannot confine this process")
                     : 0;
    close(rules);
    return failed;
}
