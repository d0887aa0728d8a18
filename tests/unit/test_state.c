/* A transition that is in no row aborts, and says which one it was. */
#include "tests/support/unit.h"

#include "base/state.h"
#include "load/group.h"
#include "load/load.h"
#include "load/team.h"
#include "load/ticket.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SHUT, OPEN, BROKEN };
static const struct state_row door_states[] = {
    [SHUT] = {"shut", STATE_BIT(OPEN)}, [OPEN] = {"open", STATE_BIT(SHUT) | STATE_BIT(BROKEN)}, [BROKEN] = {"broken", 0}};
static const struct state_machine door = {"door", door_states, 3};

/* What a child says that goes there, and how it ends. */
static int try_transition(unsigned from, unsigned to, char said[128])
{
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        const struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        signal(SIGABRT, SIG_DFL);
        dup2(ends[1], STDERR_FILENO);
        state_check(&door, from, to);
        _exit(0);
    }
    close(ends[1]);
    ssize_t n = read(ends[0], said, 127);
    said[n < 0 ? 0 : n] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

TEST(what_is_in_the_table_is_allowed_and_all_else_aborts)
{
    char said[128];
    for (unsigned from = SHUT; from <= BROKEN; from++) {
        for (unsigned to = SHUT; to <= BROKEN; to++) {
            int status = try_transition(from, to, said);
            if (door_states[from].next & STATE_BIT(to))
                assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
            else
                assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
        }
    }
}

TEST(the_message_names_the_machine_and_both_states)
{
    char said[128];
    try_transition(SHUT, BROKEN, said);
    assert_non_null(strstr(said, "a door cannot go from shut to broken"));
}

static unsigned n_seen;

static void count_transition(const struct state_machine *machine, unsigned from, unsigned to)
{
    assert_ptr_equal(machine, &door);
    assert_int_equal(from, SHUT);
    assert_int_equal(to, OPEN);
    n_seen++;
}

TEST(an_observer_is_told_of_each)
{
    state_observer = count_transition;
    state_check(&door, SHUT, OPEN);
    state_observer = NULL;
    state_check(&door, OPEN, SHUT);
    assert_int_equal(n_seen, 1);
}

/* The states that may come after it, sooner or later. */
static uint32_t reachable_from(const struct state_machine *machine, unsigned from)
{
    uint32_t reached = machine->rows[from].next, before;
    do {
        before = reached;
        for (unsigned state = 0; state < machine->n_rows; state++)
            if (reached & STATE_BIT(state))
                reached |= machine->rows[state].next;
    } while (reached != before);
    return reached;
}

TEST(every_machine_leads_from_its_first_state_through_all_to_its_last)
{
    static const struct state_machine *const machines[] = {&ticket_machine, &load_machine, &team_machine, &group_machine,
                                                           &group_slot_machine};
    for (size_t m = 0; m < sizeof machines / sizeof machines[0]; m++) {
        const struct state_machine *machine = machines[m];
        unsigned last = (unsigned)machine->n_rows - 1;
        assert_int_equal(machine->rows[last].next, 0);
        for (unsigned s = 0; s <= last; s++) {
            assert_non_null(machine->rows[s].name);
            assert_true(s == 0 || reachable_from(machine, 0) & STATE_BIT(s));
            assert_true(s == last || reachable_from(machine, s) & STATE_BIT(last));
        }
    }
}
