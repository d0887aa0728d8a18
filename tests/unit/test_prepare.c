/* What becomes of a request before a byte is read for it; on this thread, as on a helper. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "load/prepare.h"
#include "resolve/artifact.h"
#include "tests/support/load_stage.h"

#include <unistd.h>

struct scene {
    struct load_stage stage;
    struct load_request request;
    struct preparation prep;
};

static int set_up(void **state)
{
    struct scene *scene = test_calloc(1, sizeof *scene);
    stage_open(&scene->stage, 0);
    scene->request = (struct load_request){.artifact = "memory:m", .view = {.whole = true}};
    scene->prep = (struct preparation){.services = &scene->stage.services,
                                       .config = &scene->stage.config,
                                       .uid = getuid(),
                                       .goal = GOAL_REPLICA,
                                       .costs = cost_defaults};
    *state = scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;
    prepare_fini(&scene->prep);
    stage_close(&scene->stage);
    test_free(scene);
    return 0;
}

TEST_IN(a_request_becomes_a_mapping_and_then_a_plan, set_up, tear_down)
{
    struct scene *scene = *state;
    struct preparation *prep = &scene->prep;
    prepare_resolve(prep, &scene->request, NULL, NULL, &prep->resolved);
    assert_non_null(prep->resolved.mapping);
    assert_int_equal(prep->resolved.mapping->view_bytes, STAGE_TENSOR_BYTES);
    assert_ptr_equal(prep->resolved.target.replicas, scene->stage.host.replicas);
    assert_null(prep->planned.plan);
    prepare_plan(prep, NULL, &prep->planned);
    assert_non_null(prep->planned.plan);
    assert_int_not_equal(prep->planned.plan->executor, EXECUTOR_OWNER_FILE_COLLECTIVE);
}

TEST_IN(what_cannot_be_resolved_leaves_no_mapping, set_up, tear_down)
{
    struct scene *scene = *state;
    scene->request.artifact = "memory:nobody";
    prepare_resolve(&scene->prep, &scene->request, NULL, NULL, &scene->prep.resolved);
    assert_null(scene->prep.resolved.mapping);
    assert_int_not_equal(scene->prep.resolved.error.code, ERROR_OK);
}

TEST_IN(an_artifact_that_is_known_is_not_resolved_again, set_up, tear_down)
{
    struct scene *scene = *state;
    const struct source_options options = {0};
    struct artifact *artifact = NULL;
    struct error error;
    assert_int_equal(artifact_resolve("memory:m", &options, NULL, false, &artifact, &error), 0);
    stage_put_artifact("m", 77);
    prepare_resolve(&scene->prep, &scene->request, artifact, NULL, &scene->prep.resolved);
    assert_ptr_equal(scene->prep.resolved.mapping->artifact, artifact);
    artifact_unref(artifact);
}

TEST_IN(memory_of_a_gpu_needs_its_gpu_and_no_memory_of_a_client_is_a_file, set_up, tear_down)
{
    struct scene *scene = *state;
    struct device_region *region = memory_alloc(sizeof *region);
    *region = (struct device_region){.kind = DEVICE_REGION_IPC, .memory_fd = -1, .lease_fd = -1};
    scene->prep.region = region;
    prepare_resolve(&scene->prep, &scene->request, NULL, NULL, &scene->prep.resolved);
    assert_null(scene->prep.resolved.mapping);
    assert_int_equal(scene->prep.resolved.error.code, ERROR_INVALID_ARGUMENT);
    assert_string_equal(scene->prep.resolved.error.reason, "REGION_WITHOUT_DEVICE");
    region->kind = DEVICE_REGION_HOST;
    scene->request.memory = MEMORY_MAPPED;
    prepare_resolve(&scene->prep, &scene->request, NULL, NULL, &scene->prep.resolved);
    assert_string_equal(scene->prep.resolved.error.reason, "REGION_AND_MAPPED");
    scene->request.memory = MEMORY_COPIED;
    prepare_resolve(&scene->prep, &scene->request, NULL, NULL, &scene->prep.resolved);
    assert_non_null(scene->prep.resolved.mapping);
}

TEST_IN(what_cannot_be_mapped_is_copied_unless_the_request_insists, set_up, tear_down)
{
    struct scene *scene = *state;
    struct preparation *prep = &scene->prep;
    scene->request.memory = MEMORY_AUTO;
    prepare_resolve(prep, &scene->request, NULL, NULL, &prep->resolved);
    prepare_plan(prep, NULL, &prep->planned);
    assert_non_null(prep->planned.plan);
    assert_null(prep->planned.files);
    assert_true(prep->planned.plan->mapped.is_known && !prep->planned.plan->mapped.is_possible);
    prep->resolved.spec.memory = MEMORY_MAPPED;
    prepare_plan(prep, NULL, &prep->planned);
    assert_null(prep->planned.plan);
    assert_int_equal(prep->planned.error.code, ERROR_FAILED_PRECONDITION);
    assert_string_equal(prep->planned.error.reason, "NOT_ON_THIS_HOST");
    prep->goal = GOAL_PLAN; /* explain says why instead */
    prepare_plan(prep, NULL, &prep->planned);
    assert_non_null(prep->planned.plan);
    assert_non_null(strstr(prep->planned.plan->mapped.reason, "only files on a disk of this host"));
}

TEST_IN(nothing_is_handed_out_unread_where_verification_is_required, set_up, tear_down)
{
    struct scene *scene = *state;
    struct preparation *prep = &scene->prep;
    scene->stage.config.sources.verify = VERIFY_REQUIRED;
    scene->request.memory = MEMORY_MAPPED;
    prepare_resolve(prep, &scene->request, NULL, NULL, &prep->resolved);
    prepare_plan(prep, NULL, &prep->planned);
    assert_null(prep->planned.plan);
    assert_string_equal(prep->planned.error.reason, "VERIFICATION_REQUIRED");
}

TEST_IN(a_group_is_wanted_unless_policy_or_strategy_speak_against_it, set_up, tear_down)
{
    struct scene *scene = *state;
    struct preparation *prep = &scene->prep;
    bool *enabled = &scene->stage.config.engine.strategy.enable_owner_file_collective;
    *enabled = true;
    assert_false(prepare_wants_group(prep));
    prep->resolved.spec.topology.has_group = true;
    prep->resolved.spec.topology.world_size = 2;
    assert_true(prepare_wants_group(prep));
    prep->resolved.spec.policy.collective = COLLECTIVE_DISABLED;
    assert_false(prepare_wants_group(prep));
    assert_true(prepare_is_of_group(prep));
    prep->resolved.spec.policy.collective = COLLECTIVE_AUTO;
    *enabled = false;
    assert_false(prepare_wants_group(prep));
}

TEST_IN(a_plan_knows_why_its_group_is_out_of_reach, set_up, tear_down)
{
    struct scene *scene = *state;
    struct preparation *prep = &scene->prep;
    scene->stage.config.engine.strategy.enable_owner_file_collective = true;
    scene->request.has_group = true;
    scene->request.group_id = "g";
    scene->request.world_size = 2;
    scene->request.source_locality = LOCALITY_SHARED_SOURCE;
    prepare_resolve(prep, &scene->request, NULL, NULL, &prep->resolved);
    prep->group_problem = reason_with(REASON_GROUP_ASSEMBLE_TIMEOUT, "missing=%d", 1);
    prepare_plan(prep, NULL, &prep->planned);
    assert_string_equal(prep->planned.plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE].reason.text,
                        "group_assemble_timeout:missing=1");
    prep->group_problem = reason_of(REASON_ELIGIBLE);
    prepare_plan(prep, NULL, &prep->planned); /* the old one is replaced */
    assert_int_not_equal(prep->planned.plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE].reason.kind,
                         REASON_GROUP_ASSEMBLE_TIMEOUT);
}

static struct artifact files_of_ranks = {.reference = "disk:/m", .identity = "files", .source_key = "version"};
static const struct device device = {.caps = {.name = "host"}};
static struct config ranks_config = {.engine.strategy.owner_file_collective_group_assemble_timeout_ms = 15000};

struct ranks {
    struct mapping mapping;
    struct preparation prep;
};

static struct group_terms terms_of(struct ranks *ranks)
{
    return prepare_group_terms(&ranks->prep, 7, 8, NULL);
}

static int begin_ranks(void **state)
{
    static struct ranks ranks;
    ranks = (struct ranks){.mapping = {.artifact = &files_of_ranks, .view_digest = "view"}};
    ranks.prep = (struct preparation){.goal = GOAL_REPLICA, .config = &ranks_config, .resolved.mapping = &ranks.mapping};
    ranks.prep.resolved.target.device = (struct device *)&device;
    ranks.prep.resolved.spec.topology = (struct execution_topology){.group_id = "g", .world_size = 2, .attempt = "a"};
    arena_init(&ranks.prep.resolved.arena, 0);
    *state = &ranks;
    return 0;
}

static int end_ranks(void **state)
{
    struct ranks *ranks = *state;
    arena_fini(&ranks->prep.resolved.arena);
    return 0;
}

TEST_IN(terms_are_those_of_the_request_and_its_files, begin_ranks, end_ranks)
{
    struct group_terms terms = terms_of(*state);
    assert_int_equal(terms.uid, 7);
    assert_int_equal(terms.owner, 8);
    assert_int_equal(terms.world_size, 2);
    assert_int_equal(terms.timeout_ms, 15000);
    assert_string_equal(terms.purpose, "load");
    assert_string_equal(terms.artifact, "version");
    assert_string_equal(terms.files, "files");
}

TEST_IN(ranks_that_load_variants_say_what_the_stored_files_look_like, begin_ranks, end_ranks)
{
    struct ranks *ranks = *state;
    struct artifact variant = files_of_ranks;
    variant.stored = &files_of_ranks;
    strcpy(variant.identity, "files and a recipe");
    ranks->mapping.artifact = &variant;
    assert_string_equal(terms_of(ranks).files, "files");
}

TEST_IN(who_only_wants_a_plan_waits_shortly_and_meets_others_of_that_kind, begin_ranks, end_ranks)
{
    struct ranks *ranks = *state;
    ranks->prep.goal = GOAL_PLAN;
    struct group_terms terms = terms_of(ranks);
    assert_string_equal(terms.purpose, "explain");
    assert_true(terms.timeout_ms < 1000);
    assert_null(prepare_group_attempt(&ranks->prep, &terms));
}

TEST_IN(a_group_spans_hosts_when_its_source_is_said_and_seen_to_be_shared, begin_ranks, end_ranks)
{
    struct ranks *ranks = *state;
    struct execution_topology *topology = &ranks->prep.resolved.spec.topology;
    struct source_file file = {.name = "f", .size_bytes = 7, .identity = {.device = 1, .inode = 2, .mtime_ns = 3}};
    struct source source = {.files = &file, .n_files = 1, .caps.filesystem = SOURCE_NETWORK};
    struct artifact artifact = {.source = &source, .reference = "disk:/m"};
    ranks->mapping.artifact = &artifact;
    topology->source_locality = LOCALITY_SHARED_SOURCE;
    struct group_terms terms = prepare_group_terms(&ranks->prep, 7, 8, "d");
    const char *version = terms.shared_version;
    assert_string_equal(terms.domain, "d");
    file.identity.device = 9; /* another mount of it */
    assert_string_equal(prepare_group_terms(&ranks->prep, 7, 8, "d").shared_version, version);
    file.identity.mtime_ns = 4;
    assert_string_not_equal(prepare_group_terms(&ranks->prep, 7, 8, "d").shared_version, version);
    topology->source_sharing_domain = "d";
    assert_string_equal(prepare_group_terms(&ranks->prep, 7, 8, "d").policy, terms.policy);
#define STAYS_HERE(place, value)                                                                                            \
    do {                                                                                                                    \
        __typeof__(place) good = (place);                                                                                   \
        (place) = (value);                                                                                                  \
        assert_null(prepare_group_terms(&ranks->prep, 7, 8, "d").domain);                                                   \
        (place) = good;                                                                                                     \
        assert_non_null(prepare_group_terms(&ranks->prep, 7, 8, "d").domain);                                               \
    } while (0)
    STAYS_HERE(topology->source_locality, LOCALITY_HOST_LOCAL);
    STAYS_HERE(topology->source_sharing_domain, "e");
    STAYS_HERE(topology->world_size, 1);
    STAYS_HERE(source.caps.filesystem, SOURCE_LOCAL);
    STAYS_HERE(ranks->prep.goal, GOAL_PLAN);
    topology->source_locality = LOCALITY_AUTO; /* the domain is as good a proof */
    STAYS_HERE(topology->source_sharing_domain, NULL);
    assert_null(prepare_group_terms(&ranks->prep, 7, 8, NULL).domain);
}

TEST_IN(another_choice_of_executor_is_another_policy, begin_ranks, end_ranks)
{
    struct ranks *ranks = *state;
    const char *before = terms_of(ranks).policy;
    ranks->prep.resolved.spec.policy.collective = 1;
    assert_string_not_equal(terms_of(ranks).policy, before);
}

TEST_IN(an_attempt_is_told_from_every_other_request, begin_ranks, end_ranks)
{
    struct ranks *ranks = *state;
    struct group_terms terms = terms_of(ranks);
    const char *first = prepare_group_attempt(&ranks->prep, &terms);
    assert_string_equal(prepare_group_attempt(&ranks->prep, &terms), first);
    strcpy(ranks->mapping.view_digest, "other");
    assert_string_not_equal(prepare_group_attempt(&ranks->prep, &terms), first);
    ranks->prep.is_lent = true;
    assert_null(prepare_group_attempt(&ranks->prep, &terms));
    ranks->prep.is_lent = false;
    ranks->prep.resolved.spec.topology.attempt = NULL;
    assert_null(prepare_group_attempt(&ranks->prep, &terms));
}
