/* What Landlock leaves to a process: tried by children, since it is for good. */
#include "tests/support/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/landlock.h"

#define ALL                                                                                                                 \
    (LANDLOCK_READ | LANDLOCK_WRITE | LANDLOCK_CREATE | LANDLOCK_FOLDERS | LANDLOCK_SOCKETS | LANDLOCK_EXECUTE |            \
     LANDLOCK_DEVICES)

static char top[] = "/tmp/tc-landlock-XXXXXX";

static void make_tree(void)
{
    strcpy(top + sizeof top - sizeof "XXXXXX", "XXXXXX");
    assert_non_null(mkdtemp(top));
    assert_int_equal(chdir(top), 0);
    assert_int_equal(mkdir("mine", 0755) | mkdir("mine/a", 0755) | mkdir("mine/b", 0755) | mkdir("other", 0755), 0);
    for (const char *const *name = (const char *const[]){"mine/file", "other/file", NULL}; *name; name++)
        close(open(*name, O_CREAT | O_WRONLY, 0644));
}

static void remove_tree(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", top);
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(system(command), 0);
}

/* Confines this process: of `confined` it has `rights` below "mine". */
static void confine(unsigned confined, unsigned rights)
{
    struct error error;
    int rules = landlock_create(confined, &error), mine = open("mine", O_PATH | O_CLOEXEC);
    if (rules < 0 || landlock_allow(rules, mine, rights, &error) < 0 || landlock_enforce(rules, &error) < 0) {
        fprintf(stderr, "%s\n", error.message);
        _exit(99);
    }
}

/* A step that a child takes: 0, or errno. */
static int open_file(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0644);
    if (fd < 0)
        return errno;
    close(fd);
    return 0;
}

static int errno_of(int failed)
{
    return failed ? errno : 0;
}

/* Runs `steps` in a child; the first that is not as it says is the exit status, from 1. */
static void run_child(int (*steps)(void))
{
    if (!landlock_abi())
        skip();
    make_tree();
    pid_t child = fork();
    if (child == 0)
        _exit(steps());
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    remove_tree();
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status))
        fail_msg("step %d", WEXITSTATUS(status));
}

static int write_steps(void)
{
    int fd = memfd_create("m", MFD_CLOEXEC);
    char again[64];
    snprintf(again, sizeof again, "/proc/self/fd/%d", fd);
    confine(ALL & ~LANDLOCK_READ, LANDLOCK_WRITE | LANDLOCK_CREATE | LANDLOCK_FOLDERS);
    int number = 0, results[][2] = {
                        {open_file("mine/file", O_RDWR), 0},
                        {open_file("mine/new", O_WRONLY | O_CREAT | O_EXCL), 0},
                        {errno_of(mkdir("mine/c", 0755)), 0},
                        {errno_of(rename("mine/new", "mine/c/new")), landlock_abi() > 1 ? 0 : EXDEV},
                        {errno_of(rmdir("mine/a")), 0},
                        {open_file(again, O_RDWR), 0}, /* memory without a name is in no folder */
                        {open_file("other/file", O_RDONLY), 0},
                        {open_file("other/file", O_WRONLY), EACCES},
                        {open_file("other/new", O_WRONLY | O_CREAT), EACCES},
                        {errno_of(mkdir("other/a", 0755)), EACCES},
                        {errno_of(unlink("other/file")), EACCES},
                        {errno_of(symlink("x", "other/x")), EACCES},
                        {errno_of(truncate("other/file", 0)), landlock_abi() > 2 ? EACCES : 0},
                        {errno_of(mkfifo("mine/fifo", 0600)), EACCES},
                        {errno_of(execl("/bin/true", "true", NULL)), EACCES},
                    };
    for (; number < (int)(sizeof results / sizeof *results); number++)
        if (results[number][0] != results[number][1])
            return number + 1;
    return 0;
}

TEST(writing_and_executing_is_left_where_a_rule_says_so_and_reading_is_free)
{
    run_child(write_steps);
}

static int read_steps(void)
{
    int before = open("other", O_PATH | O_DIRECTORY | O_CLOEXEC);
    confine(ALL, LANDLOCK_READ);
    int results[][2] = {
        {open_file("mine/file", O_RDONLY), 0},
        {open_file("mine", O_RDONLY | O_DIRECTORY), 0},
        {open_file("mine/file", O_WRONLY), EACCES},
        {open_file("other/file", O_RDONLY), EACCES},
        {open_file("other", O_RDONLY | O_DIRECTORY), EACCES},
        {errno_of(openat(before, "file", O_RDONLY | O_CLOEXEC) < 0), EACCES},
        {open_file("/etc/passwd", O_RDONLY), EACCES},
    };
    for (int number = 0; number < (int)(sizeof results / sizeof *results); number++)
        if (results[number][0] != results[number][1])
            return number + 1;
    return 0;
}

TEST(reading_can_be_confined_too)
{
    run_child(read_steps);
}

static int bind_at(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    return errno_of(bind(fd, (struct sockaddr *)&address, sizeof address));
}

static int socket_steps(void)
{
    confine(ALL & ~LANDLOCK_READ, LANDLOCK_SOCKETS);
    return bind_at("mine/socket") != 0 ? 1 : bind_at("other/socket") != EACCES ? 2 : unlink("mine/socket") != 0 ? 3 : 0;
}

TEST(sockets_are_made_where_a_rule_says_so)
{
    run_child(socket_steps);
}

static int file_steps(void)
{
    struct error error;
    int rules = landlock_create(ALL & ~LANDLOCK_READ, &error), file = open("other/file", O_PATH | O_CLOEXEC);
    /* of a file, rights of folders do not count */
    if (landlock_allow(rules, file, LANDLOCK_WRITE | LANDLOCK_CREATE | LANDLOCK_FOLDERS, &error) < 0 ||
        landlock_allow(rules, file, LANDLOCK_FOLDERS, &error) < 0 || landlock_enforce(rules, &error) < 0)
        return 1;
    return open_file("other/file", O_WRONLY) != 0 ? 2 : open_file("mine/file", O_WRONLY) != EACCES ? 3 : 0;
}

TEST(a_rule_may_be_of_one_file)
{
    run_child(file_steps);
}
