/* Which block of a tensor a device of a mesh gets: by specs, by placements, and by the best-effort rule. */
#include "tests/support/unit.h"

#include "client/sharding.h"
#include "client/sharding.h" /* before cmocka.h, whose macro fail() would hide base/error.h's function */

static struct arena arena;
static struct error error;

static int tear_down(void **state)
{
    arena_fini(&arena);
    return 0;
}

static int build(struct sharding *sharding, const char *mesh, const char *spec, const char *placements, int64_t best_effort,
                 int64_t rank)
{
    const struct tc_sharding_options options = {.mesh = mesh,
                                                .mesh_rank = rank,
                                                .specs = &spec,
                                                .placements = &placements,
                                                .n_specs = spec != NULL,
                                                .n_placements = placements != NULL,
                                                .best_effort = best_effort};
    return sharding_build(&options, &arena, sharding, &error);
}

/* "0:2 4:8" for the slices of a tensor, "whole", or "CODE REASON". */
static const char *slices_of(const struct sharding *sharding, size_t rank, const uint64_t *shape)
{
    static char text[256];
    const struct tc_slice *slices;
    if (sharding_apply(sharding, "w", 1, shape, rank, &arena, &slices, &error) < 0) {
        snprintf(text, sizeof text, "%s %s", error_code_name(error.code), error.reason);
        return text;
    }
    size_t used = 0;
    strcpy(text, slices ? "" : "whole");
    for (size_t d = 0; slices && d < rank; d++)
        used +=
            (size_t)(slices[d].stop == TC_OPEN_END ? snprintf(text + used, sizeof text - used, "%s:", d ? " " : "")
                                                   : snprintf(text + used, sizeof text - used, "%s%lld:%lld", d ? " " : "",
                                                              (long long)slices[d].start, (long long)slices[d].stop));
    return text;
}

static const char *by(const char *mesh, const char *spec, const char *placements, int64_t best_effort, int64_t rank,
                      size_t n, const uint64_t *shape)
{
    struct sharding sharding;
    if (build(&sharding, mesh, spec, placements, best_effort, rank) < 0)
        return error.reason;
    return slices_of(&sharding, n, shape);
}
#define BY_SPEC(mesh, spec, rank, ...)                                                                                      \
    by(mesh, spec, NULL, 0, rank, sizeof((uint64_t[]){__VA_ARGS__}) / 8, (const uint64_t[]){__VA_ARGS__})
#define BY_PLACEMENTS(mesh, placements, rank, ...)                                                                          \
    by(mesh, NULL, placements, 0, rank, sizeof((uint64_t[]){__VA_ARGS__}) / 8, (const uint64_t[]){__VA_ARGS__})
#define BEST_EFFORT(mesh, n, rank, ...)                                                                                     \
    by(mesh, NULL, NULL, n, rank, sizeof((uint64_t[]){__VA_ARGS__}) / 8, (const uint64_t[]){__VA_ARGS__})

TEST_IN(best_effort_splits_from_the_last_dimension_by_what_divides, NULL, tear_down)
{
    static const struct {
        size_t rank;
        uint64_t shape[3], n_devices, grid[3]; /* without the replicas */
    } cases[] = {
        {1, {8}, 8, {8}},
        {2, {2, 4}, 8, {2, 4}},
        {2, {4, 2}, 8, {4, 2}},
        {2, {8, 1}, 8, {8, 1}},
        {2, {1, 8}, 8, {1, 8}},
        {3, {2, 2, 2}, 8, {2, 2, 2}},
        {3, {2, 2, 2}, 6, {1, 1, 2}},
        {2, {4096, 14336}, 8, {1, 8}},
        {2, {4096, 14336}, 6, {1, 2}},
        {2, {3, 5}, 8, {1, 1}},
        {2, {6, 4}, 8, {2, 4}},
        {2, {128256, 4096}, 32, {1, 32}},
        {2, {0, 3}, 4, {4, 1}}, /* nothing has everything in common with any number */
        {0, {0}, 4, {0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t replicas = cases[i].n_devices;
        for (size_t d = 0; d < cases[i].rank; d++)
            replicas /= cases[i].grid[d];
        for (uint64_t device = 0; device < cases[i].n_devices; device++) {
            struct block blocks[3];
            uint64_t index = 0, parts = 1;
            best_effort_apply(cases[i].n_devices, device, cases[i].shape, cases[i].rank, blocks);
            for (size_t d = 0; d < cases[i].rank; d++) {
                uint64_t share = cases[i].shape[d] / cases[i].grid[d];
                assert_int_equal(blocks[d].extent, share);
                index = index * cases[i].grid[d] + (share ? blocks[d].offset / share : 0);
                parts *= cases[i].grid[d];
            }
            if (cases[i].rank && cases[i].shape[0])
                assert_int_equal(index, device % (cases[i].n_devices / replicas)); /* replicas are the slowest axis */
        }
    }
    assert_string_equal(BEST_EFFORT(NULL, 8, 5, 6, 4), "3:6 1:2");
    assert_string_equal(BEST_EFFORT(NULL, 6, 5, 2, 2, 2), ": : 1:2");
    assert_string_equal(BEST_EFFORT(NULL, 8, 5, 3, 5), "whole");
    assert_string_equal(by(NULL, NULL, NULL, 4, 3, 0, NULL), "whole");
}

TEST_IN(best_effort_on_a_mesh_splits_one_dimension_over_its_data_axis, NULL, tear_down)
{
    assert_string_equal(BEST_EFFORT("data=4", 4, 1, 2, 4), ": 1:2");
    assert_string_equal(BEST_EFFORT("data=4", 4, 1, 4, 2), "1:2 :");
    assert_string_equal(BEST_EFFORT("data=8", 8, 1, 2, 4), "whole");
    assert_string_equal(BEST_EFFORT("data=8", 8, 1, 1, 8), ": 1:2");
    assert_string_equal(BEST_EFFORT("data=4,model=8", 32, 9, 16, 16), ": 4:8"); /* device 9 = (1, 1) */
    assert_string_equal(BEST_EFFORT("replica=1,model=1", 1, 0, 8, 8), "whole");
    assert_string_equal(BEST_EFFORT("replica=2,model=4", 8, 5, 8, 8), "BAD_SHARDING"); /* every device would hold it all */
    assert_string_equal(by("data=4", NULL, NULL, 4, 3, 0, NULL), "whole");
    assert_string_equal(BEST_EFFORT("data=4,model=8", 4, 0, 8, 8), "BAD_SHARDING");
    assert_non_null(strstr(error.message, "32"));
}

TEST_IN(a_spec_splits_over_axes_and_the_others_replicate, NULL, tear_down)
{
    uint64_t n_distinct = 0;
    char seen[32][32];
    for (int64_t rank = 0; rank < 32; rank++) { /* document 002's mesh: 8 distinct blocks, each on 4 hosts */
        const char *slices = BY_SPEC("data=4,model=8", "*=model,-", rank, 8192, 64);
        uint64_t k = 0;
        while (k < n_distinct && strcmp(seen[k], slices) != 0)
            k++;
        if (k == n_distinct)
            snprintf(seen[n_distinct++], sizeof seen[0], "%s", slices);
    }
    assert_int_equal(n_distinct, 8);
    assert_string_equal(BY_SPEC("data=4,model=8", "*=model,-", 9, 16, 4), "2:4 :");
    assert_string_equal(BY_SPEC("data=4,model=8", "*=-,data", 9, 16, 4), ": 1:2");
    assert_string_equal(BY_SPEC("data=4,model=8", "*=(data,model),-", 9, 64, 4), "18:20 :");
    assert_string_equal(BY_SPEC("data=4,model=8", "*=data+model", 9, 64, 4), "18:20 :");
    assert_string_equal(BY_SPEC("data=4,model=8", "*=(model,data)", 9, 64, 4), "10:12 :"); /* the first is the slower one */
    assert_string_equal(BY_SPEC("data=4,model=8", "*=data,model", 9, 8, 8), "2:4 1:2");
    assert_string_equal(BY_SPEC("data=4,model=8", "*=-", 9, 7, 7), "whole");
    assert_string_equal(BY_SPEC("data=4,model=8", "*=", 9, 7, 7), "whole");
    assert_string_equal(BY_SPEC("data=4,model=8", "nobody=model", 9, 7, 7), "whole");
    assert_string_equal(BY_SPEC("data=4,model=8", "*=model", 9, 0, 7), "whole");
    assert_string_equal(BY_SPEC("data=1,model=1", "*=model", 0, 5), "whole");
}

TEST_IN(a_spec_that_does_not_fit_a_tensor_names_it_and_the_dimension, NULL, tear_down)
{
    assert_string_equal(BY_SPEC("data=4,model=8", "*=-,model", 9, 8, 12), "INVALID_ARGUMENT DOES_NOT_DIVIDE");
    assert_non_null(strstr(error.message, "tensor 'w'"));
    assert_non_null(strstr(error.message, "dimension 1 (12)"));
    assert_non_null(strstr(error.message, "8 parts of model"));
    assert_string_equal(BY_SPEC("data=4,model=8", "*=model,-", 9, 8), "INVALID_ARGUMENT SPEC_TOO_LONG");
    assert_non_null(strstr(error.message, "2 entries for 1 dimension;"));
    assert_string_equal(by("data=4", "*=-", NULL, 0, 0, 0, NULL), "INVALID_ARGUMENT SPEC_TOO_LONG");
}

TEST_IN(specs_are_entries_with_commas_between_them, NULL, tear_down)
{
    static const struct {
        const char *spec, *reason;
    } bad[] = {
        {"*=models", "NO_SUCH_AXIS"}, {"*=model,model", "AXIS_TWICE"}, {"*=(model,data),model", "AXIS_TWICE"},
        {"*=,", "BAD_SPEC"},          {"*=model,", "BAD_SPEC"},        {"*=(model", "BAD_RULE"},
        {"*=()", "BAD_SPEC"},         {"*=model)", "BAD_RULE"},        {"*=model;data", "NO_SUCH_AXIS"},
        {"*=--", "NO_SUCH_AXIS"},     {"*=model+", "BAD_SPEC"},        {"*=(model,data)data", "BAD_SPEC"},
        {"model,-", "BAD_RULE"},      {"=model", "BAD_RULE"},          {"", "BAD_RULE"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const char *end = BY_SPEC("data=4,model=8", bad[i].spec, 0, 7);
        if (strcmp(end, bad[i].reason) != 0)
            fail_msg("'%s': %s", bad[i].spec, end);
    }
    char spec[200] = "*=-", *end = spec + 3;
    for (size_t i = 1; i < TC_MAX_RANK; i++, end += 2)
        strcpy(end, ",-");
    assert_string_equal(BY_SPEC("data=4", spec, 0, 4), "INVALID_ARGUMENT SPEC_TOO_LONG");
    strcpy(end, ",-");
    assert_string_equal(BY_SPEC("data=4", spec, 0, 4), "BAD_SPEC"); /* 65 entries */
}

TEST_IN(the_first_rule_whose_glob_matches_decides, NULL, tear_down)
{
    static const char *const specs[] = {"a=b.*=-", "*.w=x", "*=-,x"};
    const struct tc_sharding_options options = {.mesh = "x=2", .mesh_rank = 1, .specs = specs, .n_specs = 3};
    static const uint64_t shape[] = {4, 4};
    struct sharding sharding;
    const struct tc_slice *slices;
    assert_int_equal(sharding_build(&options, &arena, &sharding, &error), 0);
    assert_int_equal(sharding_apply(&sharding, "a=b.w", 5, shape, 2, &arena, &slices, &error), 0);
    assert_null(slices);
    assert_int_equal(sharding_apply(&sharding, "c.w", 3, shape, 2, &arena, &slices, &error), 0);
    assert_int_equal(slices[0].start, 2);
    assert_int_equal(sharding_apply(&sharding, "c.v", 3, shape, 2, &arena, &slices, &error), 0);
    assert_int_equal(slices[1].start, 2);
}

TEST_IN(placements_cut_into_rounded_up_shares_from_left_to_right, NULL, tear_down)
{
    assert_string_equal(BY_PLACEMENTS("a=4", "*=S(0)", 1, 10, 3), "3:6 :");
    assert_string_equal(BY_PLACEMENTS("a=4", "*=S(0)", 3, 10, 3), "9:10 :");
    assert_string_equal(BY_PLACEMENTS("a=4", "*=S(0)", 3, 2, 5), "2:2 :"); /* nothing is left for it */
    assert_string_equal(BY_PLACEMENTS("a=4", "*=S(-1)", 1, 3, 8), ": 2:4");
    assert_string_equal(BY_PLACEMENTS("a=4", "*=R", 1, 3, 8), "whole");
    assert_string_equal(BY_PLACEMENTS("dp=2,tp=2", "*=S(1),S(1)", 0, 2, 5), ": 0:2"); /* the example of torch */
    assert_string_equal(BY_PLACEMENTS("dp=2,tp=2", "*=S(1),S(1)", 1, 2, 5), ": 2:3");
    assert_string_equal(BY_PLACEMENTS("dp=2,tp=2", "*=S(1),S(1)", 2, 2, 5), ": 3:4");
    assert_string_equal(BY_PLACEMENTS("dp=2,tp=2", "*=S(1),S(1)", 3, 2, 5), ": 4:5");
    assert_string_equal(BY_PLACEMENTS("dp=2,tp=2", "*=S(0),S(1)", 2, 4, 6), "2:4 0:3");
    assert_string_equal(BY_PLACEMENTS("dp=2,tp=2", "*=R,S(0)", 2, 4, 6), "0:2 :");
    assert_string_equal(BY_PLACEMENTS("dp=2,tp=2", "*=S(0),S(0)", 2, 0, 6), "whole");
    assert_string_equal(by("a=4", NULL, "*=R", 0, 0, 0, NULL), "whole");
    assert_string_equal(BY_PLACEMENTS("a=3", "*=S(0)", 1, UINT64_MAX), "whole"); /* no file holds it: it has to be empty */
}

TEST_IN(a_strided_placement_is_fsdp_behind_tensor_parallelism, NULL, tear_down)
{
    static const char *const rows[] = {"0:2 :", "4:6 :", "2:4 :", "6:8 :"};
    for (int64_t rank = 0; rank < 4; rank++) /* start = block * (strided degree * shard rank + strided rank) */
        assert_string_equal(BY_PLACEMENTS("dp=2,tp=2", "*=_S(0,2),S(0)", rank, 8, 8), rows[rank]);
    assert_string_equal(BY_PLACEMENTS("dp=4,tp=2", "*=_S(0, 2),S(0)", 5, 16, 2), "12:14 :");
    assert_string_equal(BY_PLACEMENTS("a=4", "*=_S(0,1)", 1, 10, 3), "3:6 :");
    assert_string_equal(BY_PLACEMENTS("a=4", "*=_S(0,2)", 3, 9), "8:9");                         /* [] + [8] */
    assert_string_equal(BY_PLACEMENTS("a=4", "*=_S(0,2)", 0, 9), "UNIMPLEMENTED NOT_ONE_BLOCK"); /* [0, 1] + [5] */
    assert_non_null(strstr(error.message, "tensor 'w'"));
    assert_non_null(strstr(error.message, "dimension 0 (9)"));
    assert_non_null(strstr(error.message, "from 0 and 5 on"));
}

TEST_IN(a_dimension_is_cut_into_65536_runs_and_not_more, NULL, tear_down)
{
    assert_string_equal(BY_PLACEMENTS("a=2", "*=_S(0,65535)", 0, 4 * 65535), "UNIMPLEMENTED NOT_ONE_BLOCK");
    assert_string_equal(BY_PLACEMENTS("a=2", "*=_S(0,65536)", 0, 4 * 65536), "INVALID_ARGUMENT TOO_MANY_RUNS");
    assert_string_equal(BY_PLACEMENTS("a=1", "*=_S(0,65535)", 0, 65535), "whole"); /* runs that touch are one */
}

TEST_IN(placements_are_one_per_axis_and_have_torchs_names, NULL, tear_down)
{
    static const char *const good[] = {"*=S(0),R",
                                       "*=Shard(0),Replicate()",
                                       "*=Shard(dim=0), R",
                                       "*=S( 0 ), R()",
                                       "*=_S(0,1),R",
                                       "*=_StridedShard(dim=0, sf=1),Replicate",
                                       "*=_StridedShard(0, split_factor=1),R"};
    static const char *const bad[] = {"*=S(0)",      "*=S(0),R,R",   "*=S(0),R,", "*=S(0)R",
                                      "*=S,R",       "*=S(),R",      "*=S(x),R",  "*=S(0,R",
                                      "*=S(64),R",   "*=S(-65),R",   "*=P,R",     "*=_S(0),R",
                                      "*=_S(0,0),R", "*=_S(0,-1),R", "*=Rx,R",    "*=S(0,2),R",
                                      "*=",          "*=,",          "*=s(0),R",  "*=S(99999999999999999999),R"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_string_equal(BY_PLACEMENTS("dp=2,tp=2", good[i], 2, 4, 6), "2:4 :");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const char *end = BY_PLACEMENTS("dp=2,tp=2", bad[i], 2, 4, 6);
        if (strcmp(end, strchr(bad[i], '(') && !strchr(bad[i], ')') ? "BAD_RULE" : "BAD_PLACEMENTS") != 0)
            fail_msg("'%s': %s", bad[i], end);
    }
    assert_string_equal(BY_PLACEMENTS("dp=2,tp=2", "*=S(2),R", 2, 4, 6), "INVALID_ARGUMENT NO_SUCH_DIMENSION");
    assert_string_equal(BY_PLACEMENTS("dp=2,tp=2", "*=S(-3),R", 2, 4, 6), "INVALID_ARGUMENT NO_SUCH_DIMENSION");
}

TEST_IN(known_meshes_have_the_sizes_of_their_hosts_and_chips, NULL, tear_down)
{
    static const struct {
        const char *name;
        uint64_t data, model;
    } known[] = {{"v5e-8", 1, 8},    {"v5e-64", 4, 8}, {"v5litepod-64", 16, 4}, {"v5e-128", 8, 8},
                 {"v5e-256", 16, 8}, {"v4-32", 4, 4},  {"v4-64", 8, 4}};
    struct mesh mesh;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        assert_int_equal(mesh_parse(known[i].name, &arena, &mesh, &error), 0);
        assert_int_equal(mesh.n_axes, 2);
        assert_string_equal(mesh.axes[0].name, "data");
        assert_string_equal(mesh.axes[1].name, "model");
        assert_int_equal(mesh.axes[0].size, known[i].data);
        assert_int_equal(mesh.axes[1].size, known[i].model);
        assert_int_equal(mesh.n_devices, known[i].data * known[i].model);
    }
    assert_int_equal(mesh_parse("v5e-65", &arena, &mesh, &error), -1);
    assert_non_null(strstr(error.message, "v5e-64"));
    assert_string_equal(BY_SPEC("v5e-64", "*=model,-", 32, 8, 8), "BAD_SHARDING"); /* 32 devices, not 64 */
    assert_non_null(strstr(error.message, "from 0 to 31"));
}

TEST_IN(a_mesh_is_named_axes_with_sizes, NULL, tear_down)
{
    static const char *const bad[] = {
        "",        "=4",      "data=",   "data=0",  "data=4,",        ",data=4",         "data=4,data=2",
        "data=-4", "4data=4", "data=4x", "da ta=4", "data=4;model=2", "data=99999999999"};
    struct mesh mesh;
    char text[16 * 8] = "";
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (mesh_parse(bad[i], &arena, &mesh, &error) == 0)
            fail_msg("accepted: %s", bad[i]);
    assert_int_equal(mesh_parse("a=1073741824", &arena, &mesh, &error), 0);
    assert_int_equal(mesh_parse("a=1073741825", &arena, &mesh, &error), -1);
    assert_int_equal(mesh_parse("a=1073741824,b=2", &arena, &mesh, &error), -1);
    for (char axis = 'a'; axis < 'a' + MESH_MAX_AXES; axis++)
        snprintf(text + strlen(text), 8, "%s%c=1", *text ? "," : "", axis);
    assert_int_equal(mesh_parse(text, &arena, &mesh, &error), 0);
    strcat(text, ",z=1");
    assert_int_equal(mesh_parse(text, &arena, &mesh, &error), -1);
}

TEST_IN(one_way_to_split_is_given_and_a_rank_of_the_mesh, NULL, tear_down)
{
    struct sharding sharding;
    assert_int_equal(build(&sharding, "a=2", NULL, NULL, 0, 0), -1);
    assert_int_equal(build(&sharding, "a=2", "*=a", "*=S(0)", 0, 0), -1);
    assert_int_equal(build(&sharding, "a=2", "*=a", NULL, 2, 0), -1);
    assert_int_equal(build(&sharding, NULL, "*=a", NULL, 0, 0), -1);
    assert_int_equal(build(&sharding, NULL, NULL, NULL, -1, 0), -1);
    assert_int_equal(build(&sharding, "a=2", "*=a", NULL, 0, 2), -1);
    assert_int_equal(build(&sharding, "a=2", "*=a", NULL, 0, -1), -1);
    assert_int_equal(build(&sharding, NULL, NULL, NULL, 4, 4), -1);
    assert_int_equal(build(&sharding, "a=2", "*=a", NULL, 0, 1), 0);
}
