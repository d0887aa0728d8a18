/* The command line: where options may stand, what they may say, and that everything senseless is refused with a hint. */
#include "tests/support/unit.h"

#include "client/cli/args.h" /* before cmocka.h, whose macro fail() would hide base/error.h's function */
#include "client/cli/command_table.h"

static struct args args;
static struct error error;

/* Splits a line at '|' and parses it, in place of the one before. */
static int parse(const char *line)
{
    static char text[1000];
    static char *words[64];
    int n = 0;
    words[n++] = "tensorcast";
    snprintf(text, sizeof text, "%s", line);
    for (char *word = strtok(text, "|"); word; word = strtok(NULL, "|"))
        words[n++] = word;
    memset(&error, 0, sizeof error);
    args_fini(&args);
    return args_parse(n, words, &args, &error);
}

static void assert_taken(const char *line)
{
    if (parse(line) < 0)
        fail_msg("%s: %s", line, error.message);
}

static void assert_refused(const char *line, const char *word)
{
    if (parse(line) == 0)
        fail_msg("accepted: %s", line);
    if (!strstr(error.message, word))
        fail_msg("%s: '%s' does not mention '%s'", line, error.message, word);
}

TEST(options_stand_anywhere_and_are_spelled_in_two_ways)
{
    static const char *const lines[] = {"--socket|/s|--json|load|disk:/m|--out|o", "load|--out=o|--json|disk:/m|--socket=/s",
                                        "--out|o|load|disk:/m|--json|--socket|/s",
                                        "load|--socket|/s|--json|--out=o|--|disk:/m"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        assert_taken(lines[i]);
        assert_int_equal(args.command, COMMAND_LOAD);
        assert_string_equal(args.artifact, "disk:/m");
        assert_string_equal(args.socket, "/s");
        assert_string_equal(args.output.path, "o");
        assert_true(args.json);
        assert_false(args.quiet || args.output.digest || args.standalone);
    }
}

TEST(a_value_may_look_like_anything)
{
    assert_taken("load|disk:/m|--out|--json|--tensor|-x|--group=a=b|--rank|0|--world-size=1");
    assert_string_equal(args.output.path, "--json");
    assert_string_equal(args.view.selectors[0].glob, "-x");
    assert_string_equal(args.load.group, "a=b");
    assert_false(args.json);
}

TEST(times_have_units_or_are_seconds)
{
    static const struct {
        const char *text;
        uint64_t ms;
    } cases[] = {{"30s", 30000}, {"1ms", 1}, {"2m", 120000}, {"1.5", 1500}, {"7", 7000}, {"0.0001", 1}, {"0", 0}};
    static const char *const bad[] = {"soon", "-1", "1 s x", "nan", "inf", "1e3", "0x10", "1.2.3", "99999999999999999999"};
    char line[100];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(line, sizeof line, "load|disk:/m|--hold|%s|--timeout=%s", cases[i].text, cases[i].text);
        assert_taken(line);
        assert_int_equal(args.output.hold_ms, cases[i].ms);
        assert_int_equal(args.timeout_ms, cases[i].ms);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(line, sizeof line, "load|disk:/m|--hold|%s", bad[i]);
        assert_refused(line, "--hold");
    }
}

TEST(selectors_keep_their_order)
{
    assert_taken("load|disk:/m|--tensor|norm|--slice|w[1:2, :]|--tensor=l.*");
    assert_int_equal(args.view.n_selectors, 3);
    assert_string_equal(args.view.selectors[0].glob, "norm");
    assert_null(args.view.selectors[1].glob);
    assert_string_equal(args.view.selectors[1].slice.name, "w");
    assert_int_equal(args.view.selectors[1].slice.n_slices, 2);
    assert_string_equal(args.view.selectors[2].glob, "l.*");
    assert_false(args.view.has_tp);
}

TEST(tensor_parallel_options_come_together)
{
    assert_taken("load|disk:/m|--tp-size|4|--tp-rank|3|--tp-rule|*.x=1|--tp-rule|*=replicate");
    assert_true(args.view.has_tp);
    assert_int_equal(args.view.tp.size, 4);
    assert_int_equal(args.view.tp.rank, 3);
    assert_int_equal(args.view.tp.n_rules, 2);
    assert_int_equal(args.view.tp.rules[0].dimension, 1);
    assert_true(args.view.tp.rules[1].replicate);
    assert_refused("load|disk:/m|--tp-size|2", "--tp-rank");
    assert_refused("load|disk:/m|--tp-rank|0", "--tp-size");
    assert_refused("load|disk:/m|--tp-rule|*=0", "--tp-size");
    assert_refused("load|disk:/m|--tp-size|2|--tp-rank|2", "from 0 to 1");
    assert_refused("load|disk:/m|--tp-size|0|--tp-rank|0", "at least 1");
    assert_refused("load|disk:/m|--tp-size|many|--tp-rank|0", "'many'");
    assert_refused("load|disk:/m|--tp-size|-1|--tp-rank|0", "--tp-size");
    assert_refused("load|disk:/m|--tp-size|2|--tp-rank|0|--tp-rule|w", "GLOB=DIM");
}

TEST(mesh_options_come_together)
{
    assert_taken("load|disk:/m|--mesh|data=4,model=8|--mesh-rank|9|--spec|*.x=model,-|--spec|*=-,model");
    assert_true(args.view.has_sharding);
    assert_int_equal(args.view.sharding.n_rules, 2);
    assert_int_equal(args.view.sharding.coordinates[0], 1);
    assert_taken("explain|disk:/m|--mesh|v5e-64|--mesh-rank|31|--placements|*=S(0),R");
    assert_taken("prewarm|disk:/m|--best-effort|8|--mesh-rank|7");
    assert_taken("load|disk:/m|--mesh|data=2|--best-effort|2|--mesh-rank|1");
    assert_refused("load|disk:/m|--mesh|data=4", "--mesh-rank");
    assert_refused("load|disk:/m|--mesh|data=4|--mesh-rank|0", "--spec, --placements or --best-effort");
    assert_refused("load|disk:/m|--mesh-rank|0", "--mesh");
    assert_refused("load|disk:/m|--spec|*=a|--mesh-rank|0", "--spec needs --mesh");
    assert_refused("load|disk:/m|--placements|*=R|--mesh-rank|0", "--placements needs --mesh");
    assert_refused("load|disk:/m|--best-effort|8", "--mesh-rank");
    assert_refused("load|disk:/m|--best-effort|8|--mesh-rank|8", "from 0 to 7");
    assert_refused("load|disk:/m|--best-effort|0|--mesh-rank|0", "at least 1");
    assert_refused("load|disk:/m|--mesh|data=4|--best-effort|8|--mesh-rank|0", "a mesh of 4");
    assert_refused("load|disk:/m|--mesh|data=4|--mesh-rank|0|--spec|*=model", "no axis 'model'");
    assert_refused("load|disk:/m|--mesh|v5e-63|--mesh-rank|0|--spec|*=model", "v5e-64");
    assert_refused("load|disk:/m|--mesh|a=2|--mesh-rank|0|--spec|*=a|--placements|*=R", "exclude");
    assert_refused("load|disk:/m|--mesh|a=2|--mesh-rank|0|--spec|*=a|--tp-size|2|--tp-rank|0", "--tp-*");
    assert_refused("load|disk:/m|--mesh|a=2|--mesh-rank|0|--spec|*=a|--view|v", "--view");
}

TEST(a_group_is_whole_or_not_there)
{
    assert_taken("explain|disk:/m|--group|g|--rank|1|--world-size|2|--source-locality|host_local|--collective|required");
    assert_string_equal(args.load.group, "g");
    assert_int_equal(args.load.rank, 1);
    assert_int_equal(args.load.world_size, 2);
    assert_int_equal(args.load.source_locality, TC_LOCALITY_HOST_LOCAL);
    assert_int_equal(args.load.collective, TC_COLLECTIVE_REQUIRED);
    assert_refused("explain|disk:/m|--rank|0|--world-size|2", "--group");
    assert_refused("explain|disk:/m|--group|g|--rank|0", "--world-size");
    assert_refused("explain|disk:/m|--group|g|--rank|2|--world-size|2", "from 0 to 1");
    assert_refused("explain|disk:/m|--group|g|--rank|-1|--world-size|2", "'-1'");
    assert_refused("explain|disk:/m|--group|g|--rank|0|--world-size|0", "at least 1");
    assert_refused("explain|disk:/m|--group=|--rank|0|--world-size|1", "not empty");
}

TEST(a_choice_is_one_of_its_words)
{
    static const char *const executors[][2] = {
        {"load|disk:/m|--executor|generic_byte_range", "load|disk:/m|--executor=generic"},
        {"load|disk:/m|--executor|tensor_batched_local", "load|disk:/m|--executor=local"},
        {"load|disk:/m|--executor|owner_file_collective", "load|disk:/m|--executor=collective"}};
    for (int i = 0; i < 3; i++)
        for (int is_short = 0; is_short < 2; is_short++) {
            assert_taken(executors[i][is_short]);
            assert_int_equal(args.load.executor, TC_EXECUTOR_GENERIC + i);
        }
    assert_taken("load|disk:/m|--executor|auto");
    assert_int_equal(args.load.executor, TC_EXECUTOR_AUTO);
    assert_taken("inspect|disk:/m|--index=canonical");
    assert_int_equal(args.output.index, INDEX_CANONICAL);
    assert_refused("inspect|disk:/m|--index|none", "source, canonical");
    assert_taken("inspect|disk:/m");
    assert_int_equal(args.output.index, INDEX_NONE);
    assert_refused("load|disk:/m|--executor|fastest",
                   "auto, generic_byte_range, tensor_batched_local, owner_file_collective");
    assert_refused("explain|disk:/m|--source-locality|far", "host_local");
    assert_refused("explain|disk:/m|--collective|perhaps", "required");
}

TEST(what_is_not_known_is_refused_with_the_nearest_name)
{
    assert_refused("frobnicate", "frobnicate");
    assert_refused("laod|disk:/m", "'load'");
    assert_refused("load|disk:/x|--no-such-option", "--no-such-option");
    assert_refused("load|disk:/x|--tensrs|w", "did you mean --tensor?");
    assert_refused("fetch|disk:/x|--tensrs|w", "did you mean --tensors?");
    assert_refused("activations|clam|s", "'activations clam'; did you mean 'claim'?");
    assert_refused("load|disk:/x|-x|w", "'-x'");
    assert_refused("load|disk:/x|--json=1", "takes no value");
    assert_refused("load|disk:/x|--out", "needs a value");
    assert_refused("load|disk:/x|--slice|w[1:2", "']'");
    assert_refused("load|disk:/x|--slice|w[1:2]|--tensor|w|--slice|w[2:3]", "tensor 'w' has two --slice options");
    assert_refused("load|a\x1b[2J|b\x1b[2J", "\\x1b");
}

TEST(operands_are_counted)
{
    assert_refused("", "command");
    assert_refused("load", "artifact");
    assert_refused("inspect|--json", "artifact");
    assert_refused("load|disk:/a|disk:/b", "disk:/b");
    assert_refused("status|disk:/a", "disk:/a");
    assert_refused("release", "--all");
    assert_refused("release|disk:/a|--all", "--all");
    assert_taken("release|--all");
    assert_taken("release|disk:/a");
    assert_refused("activations", "such as 'status'");
    assert_refused("activations|status", "needs STORE");
    assert_refused("activations|status|/a|/b", "/b");
    assert_taken("activations|import|/a|/b|/c|--host|3");
    assert_int_equal(args.n_more_artifacts, 2);
}

TEST(an_option_belongs_to_its_commands)
{
    assert_refused("inspect|disk:/m|--out|o", "'inspect' has no option --out");
    assert_refused("load|disk:/m|--tensors|model.*", "'load' has no option --tensors; did you mean --tensor?");
    assert_refused("--hold|1|status", "--hold");
    assert_refused("activations|status|/a|--units|3", "'activations status' has no option --units");
    assert_refused("--units|3|activations|status|/a", "'activations status' has no option --units");
    assert_taken("activations|--units|3|claim|/a|--owner|me");
    assert_refused("prewarm|disk:/m|--standalone", "--standalone");
    assert_refused("load|disk:/m|--view|v|--tensor|w", "--view");
    assert_refused("load|disk:/m|--view|v|--tp-size|1|--tp-rank|0", "--view");
}

TEST(memory_is_the_daemons_choice_where_nothing_is_said)
{
    assert_taken("load|disk:/m");
    assert_int_equal(args.load.memory, TC_MEMORY_AUTO);
    assert_taken("--memory|mapped|load|disk:/m|--device|cpu");
    assert_int_equal(args.load.memory, TC_MEMORY_MAPPED);
    assert_taken("prewarm|disk:/m|--memory=copied");
    assert_int_equal(args.load.memory, TC_MEMORY_COPIED);
    assert_taken("load|disk:/m|--standalone|--memory|auto");
    assert_int_equal(args.load.memory, TC_MEMORY_COPIED);
    assert_taken("explain|disk:/m|--device|cuda:0");
    assert_int_equal(args.load.memory, TC_MEMORY_COPIED);
    assert_refused("load|disk:/m|--memory|borrowed", "borrowed");
    assert_refused("load|disk:/m|--standalone|--memory|mapped", "--standalone");
    assert_refused("load|disk:/m|--device|cuda:0|--memory|mapped", "--device");
    assert_refused("inspect|disk:/m|--memory|mapped", "--memory");
}

TEST(an_export_says_what_for_whom_and_within_which_bounds)
{
    assert_taken("export|disk:/m|--out|o|--format|dcp|--world-size|4096|--rank|4095|--uneven|ceil|--tp-rule|*=0");
    assert_true(args.standalone && args.load.world_size == 4096 && args.load.rank == 4095 && args.view.tp.n_rules == 1);
    assert_false(args.view.has_tp);
    assert_taken("export|disk:/m|--out|o|--max-file-size|5GB");
    assert_int_equal(args.export.max_file_bytes, 5000000000);
    assert_taken("export|disk:/m|--out|o|--max-file-size|1.5MiB|--memory|16MiB");
    assert_int_equal(args.export.max_file_bytes, 3 << 19);
    assert_taken("fuse|--input-dir|/m|-o|o");
    assert_string_equal(args.artifact, "/m");
    assert_taken("fuse|--input-dir|a:b|-o|o");
    assert_string_equal(args.artifact, "./a:b"); /* a plain name is a folder here */
    assert_taken("reshard|--input-dir|https://h/m|--output-dir|o|-t|3");
    assert_string_equal(args.artifact, "https://h/m");
    assert_taken("reshard|--input-dir|/m|-o|o|-t|4");
    assert_true(args.load.world_size == 4 && strcmp(args.output.path, "o") == 0);
    assert_refused("reshard|--input-dir|/m|-o|o|-t", "--target-world-size");
    assert_refused("reshard|--input-dir|/m|-o|o|-t4", "-t4");
    assert_refused("reshard|--input-dir|/m|-o=o|-t|4", "-o=o");
    assert_refused("reshard|--input-dir|/m|-out|o|-t|4", "-out");
    assert_refused("reshard|--input-dir|/m|-o|o|-threads|4", "-threads");
    assert_refused("export|disk:/m", "--out");
    assert_refused("export|disk:/m|--out|-", "--out");
    assert_refused("export|disk:/m|--out|o|--format|topology", "--world-size");
    assert_refused("export|disk:/m|--out|o|--format|topology|--world-size|4097", "4096");
    assert_refused("export|disk:/m|--out|o|--format|topology|--world-size|4|--rank|4", "--rank 4");
    assert_refused("export|disk:/m|--out|o|--format|topology|--world-size|4|--mapping|m", "hf format");
    assert_refused("export|disk:/m|--out|o|--world-size|4", "--format");
    assert_refused("export|disk:/m|--out|o|--tp-rule|*=0", "--format topology or dcp, or --tp-size and --tp-rank");
    assert_taken("export|disk:/m|--out|o|--tp-rule|*=0|--tp-size|2|--tp-rank|1");
    assert_refused("export|disk:/m|--out|o|--memory|15MiB", "16MiB");
    assert_refused("export|disk:/m|--out|o|--memory|mapped", "16MiB");
    assert_refused("export|disk:/m|--out|o|--dtype|bflaot16", "did you mean BF16?");
    assert_taken("export|disk:/m|--out|o|--dtype|f8_e4m3");
    assert_string_equal(args.variant.dtype, "F8_E4M3");
    assert_refused("export|disk:/m|--out|o|--mapping|m|--max-file-size|1", "--mapping");
    assert_refused("reshard|--input-dir|/m|-o|o", "--target-world-size");
    assert_refused("fuse|-o|o", "artifact");
    assert_refused("fuse|--input-dir|/m|-o", "--out");
}

TEST(help_and_version_need_nothing_else)
{
    assert_taken("--help");
    assert_true(args.help && args.command == -1);
    assert_taken("load|--help");
    assert_true(args.help && args.command == COMMAND_LOAD);
    assert_taken("help|verify");
    assert_true(args.help && args.command == COMMAND_VERIFY);
    assert_taken("-h");
    assert_true(args.help);
    assert_taken("--version");
    assert_true(args.version);
}

/* The caller frees. */
static char *read_help(int command)
{
    static char *text;
    static size_t length;
    FILE *out = open_memstream(&text, &length);
    command_print_help(command, out);
    fclose(out);
    return text;
}

/* The lines of a help that explain the option. */
static int count_lines(const char *text, const char *option)
{
    int n = 0;
    char line[64];
    snprintf(line, sizeof line, "\n  --%s", option);
    for (const char *at = text; (at = strstr(at, line)); at++)
        n += strchr(" \n", at[strlen(line)]) != NULL;
    return n;
}

static bool is_in(const char *text, const struct option_row *row)
{
    char words[24];
    snprintf(words, sizeof words, "%.12s", row->help); /* as much of it as no line breaks */
    return strstr(text, words);
}

TEST(the_help_of_a_command_has_each_of_its_options_once_and_no_others)
{
    for (int command = 0; command < COMMAND_COUNT; command++) {
        char *text = read_help(command);
        for (size_t i = 0; i < n_option_rows && command != COMMAND_ACTIVATIONS; i++) {
            const struct option_row *row = &option_rows[i];
            bool is_taken = command_takes(command, row);
            if (count_lines(text, row->name) != is_taken)
                fail_msg("%s --help has --%s %d times", command_table[command].name, row->name,
                         count_lines(text, row->name));
            if ((row->groups & (command_table[command].options | OPTIONS_GLOBAL)) && !is_in(text, row))
                fail_msg("%s --help does not say what --%s is to it", command_table[command].name, row->name);
        }
        free(text);
    }
}

TEST(no_line_of_a_help_is_longer_than_a_terminal)
{
    for (int command = -1; command < COMMAND_COUNT; command++) {
        char *text = read_help(command);
        for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
            if (strcspn(line, "\n") > OPTIONS_LINE_COLUMNS)
                fail_msg("%.*s", (int)strcspn(line, "\n"), line);
        free(text);
    }
}

TEST(no_help_speaks_of_another_command_before_its_meaning)
{
    for (size_t i = 0; i < n_option_rows; i++)
        for (int command = 0; command < COMMAND_TOP_COUNT; command++) {
            char words[32];
            snprintf(words, sizeof words, "%s:", command_table[command].name);
            if (strstr(option_rows[i].help, words))
                fail_msg("--%s: %s", option_rows[i].name, option_rows[i].help);
        }
}

TEST(the_general_help_has_every_command_once_and_every_alias)
{
    char line[64], *text = read_help(-1);
    for (int i = 0; i < COMMAND_TOP_COUNT; i++) {
        snprintf(line, sizeof line, "\n  %-12s ", command_table[i].name);
        const char *at = strstr(text, line);
        if (!at || strstr(at + 1, line))
            fail_msg("%s is not there once", command_table[i].name);
        snprintf(line, sizeof line, "%s is %s", command_table[i].alias, command_table[i].name);
        assert_true(!command_table[i].alias || strstr(text, line));
    }
    free(text);
}

TEST(an_alias_is_its_command_and_other_words_are_advice)
{
    assert_taken("ls|/m");
    assert_int_equal(args.command, COMMAND_INSPECT);
    assert_taken("pull|/m");
    assert_int_equal(args.command, COMMAND_FETCH);
    assert_taken("convert|/m|--out|o");
    assert_int_equal(args.command, COMMAND_EXPORT);
    assert_taken("ps");
    assert_int_equal(args.command, COMMAND_STATUS);
    assert_refused("get|/m", "did you mean 'fetch'?");
    assert_refused("cat|/m", "did you mean 'load'?");
    assert_refused("upload|/m", "did you mean 'put'?");
    assert_refused("ping", "did you mean 'health'?");
}
