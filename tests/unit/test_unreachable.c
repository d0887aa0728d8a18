/* What a user is told when no daemon answers: which sockets were tried, why not, and what to do. */
#include "tests/support/unit.h"

#undef fail /* ours is in base/error.h */

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/unreachable.h"

enum { OTHER_USER = 65534, NAMELESS_USER = 48611, SOME_GROUP = 1 };

static struct {
    char folder[32], socket[64];
    struct error *told; /* shared with children */
} scene;

static int make_socket_file(void **state)
{
    snprintf(scene.folder, sizeof scene.folder, "/tmp/unreachable-XXXXXX");
    if (!mkdtemp(scene.folder))
        return -1;
    snprintf(scene.socket, sizeof scene.socket, "%s/daemon.sock", scene.folder);
    scene.told = mmap(NULL, sizeof *scene.told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return close(creat(scene.socket, 0600)) || chmod(scene.folder, 0755) || scene.told == MAP_FAILED;
}

static int remove_socket_file(void **state)
{
    munmap(scene.told, sizeof *scene.told);
    return unlink(scene.socket) || rmdir(scene.folder);
}

/* As that user, whose groups are none. What was told is in scene.told. */
static void ask_as(uid_t uid, const char *other)
{
    int status;
    if (getuid() != 0)
        skip(); /* cannot become another */
    pid_t child = fork();
    if (child == 0) {
        bool is_other = setgroups(0, NULL) == 0 && setgid(uid) == 0 && setuid(uid) == 0;
        _exit(is_other && unreachable_socket(scene.socket, other, EACCES, scene.told) == -1 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void assert_told(enum error_code code, const char *reason, const char *const words[])
{
    assert_int_equal(scene.told->code, code);
    assert_string_equal(scene.told->reason, reason);
    for (; *words; words++) {
        if (!strstr(scene.told->message, *words))
            print_error("\"%s\" is not in \"%s\"\n", *words, scene.told->message);
        assert_non_null(strstr(scene.told->message, *words));
    }
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

TEST_IN(a_socket_of_a_group_names_the_command_that_lets_the_user_in, make_socket_file, remove_socket_file)
{
    char command[64];
    struct group *group = getgrgid(SOME_GROUP);
    if (!group || chown(scene.socket, 0, SOME_GROUP) || chmod(scene.socket, 0660))
        skip();
    snprintf(command, sizeof command, "usermod -aG %s nobody, then log in again", group->gr_name);
    ask_as(OTHER_USER, NULL);
    assert_told(ERROR_PERMISSION_DENIED, "SOCKET_FORBIDDEN", WORDS("user nobody", scene.socket, "(0660 root:", command));
    assert_null(strstr(scene.told->message, "tensorcastd --user"));
    ask_as(OTHER_USER, "/run/user/1/tensorcast/daemon.sock"); /* no socket was named: one of their own would be taken */
    assert_told(ERROR_PERMISSION_DENIED, "SOCKET_FORBIDDEN", WORDS(command, "tensorcastd --user &"));
}

TEST_IN(a_user_without_a_name_is_told_the_number_of_the_group, make_socket_file, remove_socket_file)
{
    if (chown(scene.socket, 0, SOME_GROUP) || chmod(scene.socket, 0660))
        skip();
    ask_as(NAMELESS_USER, NULL);
    assert_told(ERROR_PERMISSION_DENIED, "SOCKET_FORBIDDEN", WORDS("user 48611", "--group-add 1)"));
}

TEST_IN(nobody_is_sent_into_the_group_of_root_or_into_one_that_is_shut_out_too, make_socket_file, remove_socket_file)
{
    static const struct {
        gid_t gid;
        mode_t mode;
    } cases[] = {{0, 0660}, {SOME_GROUP, 0640}, {SOME_GROUP, 0600}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (chown(scene.socket, 0, cases[i].gid) || chmod(scene.socket, cases[i].mode))
            skip();
        ask_as(OTHER_USER, NULL);
        assert_told(ERROR_PERMISSION_DENIED, "SOCKET_FORBIDDEN", WORDS("server.socket_mode"));
        assert_null(strstr(scene.told->message, "usermod"));
    }
}

TEST_IN(a_folder_that_is_closed_is_named_instead_of_the_socket_in_it, make_socket_file, remove_socket_file)
{
    char words[64];
    if (chmod(scene.socket, 0666) || chmod(scene.folder, 0700))
        skip();
    ask_as(OTHER_USER, NULL);
    snprintf(words, sizeof words, "which is in %s (0700 ", scene.folder);
    assert_told(ERROR_PERMISSION_DENIED, "SOCKET_FORBIDDEN", WORDS(scene.socket, words));
}

TEST_IN(a_mode_that_lets_the_user_in_is_not_blamed, make_socket_file, remove_socket_file)
{
    if (chmod(scene.socket, 0666))
        skip();
    ask_as(OTHER_USER, NULL);
    assert_told(ERROR_PERMISSION_DENIED, "SOCKET_FORBIDDEN", WORDS("(0666 ", "SELinux"));
}

TEST_IN(every_socket_that_was_tried_is_named_and_what_to_do, make_socket_file, remove_socket_file)
{
    const int refusals[] = {ENOENT, ECONNREFUSED, ENOTSOCK};
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        assert_int_equal(unreachable_socket("/run/a.sock", "/tmp/b/b.sock", refusals[i], scene.told), -1);
        assert_told(ERROR_UNAVAILABLE, "DAEMON_UNREACHABLE",
                    WORDS("/run/a.sock", "/tmp/b/b.sock", strerrordesc_np(refusals[i]), "tensorcastd --user &"));
    }
    unreachable_socket("/run/a.sock", scene.socket, ECONNREFUSED, scene.told); /* which was not tried */
    assert_told(ERROR_UNAVAILABLE, "DAEMON_UNREACHABLE", WORDS("/run/a.sock", "--socket", scene.socket));
    assert_null(strstr(scene.told->message, "nor on"));
    unreachable_socket("/named.sock", NULL, ENOENT, scene.told);
    assert_told(ERROR_UNAVAILABLE, "DAEMON_UNREACHABLE", WORDS("/named.sock", "running there", "tensorcastd --user &"));
}

TEST_IN(one_socket_without_the_other_is_no_reason_to_try_again, make_socket_file, remove_socket_file)
{
    unreachable_handoff("/only/d.sock", "/run/loader/daemon.handoff", scene.told);
    assert_told(ERROR_FAILED_PRECONDITION, "HANDOFF_NOT_MOUNTED",
                WORDS("/only/d.sock", "/run/loader/daemon.handoff", "the folder of both sockets (/run/loader)"));
}
