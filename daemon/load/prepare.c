#include "load/prepare.h"

#include "base/clock.h"
#include "base/metadata.h"
#include "calibration/residency.h"
#include "base/huge_pages.h"
#include "execute/engine.h"
#include "execute/scales.h"
#include "observe/log.h"
#include "resolve/artifact.h"
#include "resolve/artifact_files.h"
#include "transport/transport.h"
#include "variant/variant.h"

enum { SMALL_PAGE_BYTES = 4096, MAX_PADDING_PART = 4 };

void prepare_fini(struct preparation *prep)
{
    device_region_close(prep->region);
    mapped_files_close(prep->files);
    plan_destroy(prep->plan);
    mapping_destroy(prep->mapping);
    arena_fini(&prep->arena);
}

/* --- resolve -------------------------------------------------------------------------------------------------------- */

static struct metadata_account account_of(const struct preparation *prep)
{
    return (struct metadata_account){.quota = prep->services->quota, .uid = prep->uid};
}

static int check_region(const struct preparation *prep, struct error *error)
{
    if (!prep->region)
        return 0;
    if (!prep->spec.device && prep->region->kind != DEVICE_REGION_HOST)
        return fail(error, ERROR_INVALID_ARGUMENT, "REGION_WITHOUT_DEVICE",
                    "the request offers memory to be filled but names no GPU that it is on");
    if (prep->spec.memory == MEMORY_MAPPED)
        return fail(error, ERROR_INVALID_ARGUMENT, "REGION_AND_MAPPED",
                    "the request offers memory to be filled and asks for the files' own pages; leave out one of them");
    return 0;
}

/* As memory of the host is taken. */
static uint64_t whole_pages(uint64_t bytes)
{
    uint64_t page_bytes = bytes < HUGE_PAGE_BYTES ? SMALL_PAGE_BYTES : HUGE_PAGE_BYTES;
    return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

/* Placed as in its files a view may begin behind the edge of a page and so take a page more, of up to 2 MiB. */
static bool is_worth_its_padding(const struct mapping *mapping, uint64_t host_budget_bytes)
{
    uint64_t bytes = whole_pages(mapping->replica_bytes);
    return bytes <= host_budget_bytes && bytes <= whole_pages(mapping->view_bytes) + mapping->view_bytes / MAX_PADDING_PART;
}

static struct mapping *build_mapping(struct preparation *prep, struct artifact *artifact)
{
    const struct load_spec *spec = &prep->spec;
    if (prep->goal == GOAL_REPLICA && !prep->region && !spec->device && spec->memory != MEMORY_MAPPED)
        prep->spec.view.budget_bytes = prep->host_budget_bytes;
    struct mapping *mapping = mapping_build(&prep->spec.view, artifact, &prep->error);
    if (!mapping || mapping->placement == PLACEMENT_PACKED || is_worth_its_padding(mapping, prep->host_budget_bytes))
        return mapping;
    mapping_destroy(mapping);
    prep->spec.view.placement = PLACEMENT_PACKED;
    if (!prep->spec.view.align_bytes)
        prep->spec.view.align_bytes = VIEW_DEFAULT_ALIGN;
    return mapping_build(&prep->spec.view, artifact, &prep->error);
}

static int resolve_artifact(const struct preparation *prep, const struct load_request *request,
                            const struct source_options *options, struct artifact **resolved, struct error *error)
{
    const struct load_spec *spec = &prep->spec;
    unsigned flags = (spec->allow_missing_shards ? RESOLVE_ALLOW_MISSING_SHARDS : 0) |
                     (request->variant_bytes ? 0 : RESOLVE_ALLOW_ABSENT_FILES); /* the view says which it needs */
    if (!request->files)
        return artifact_resolve(spec->artifact, options, prep->services->headers, flags, resolved, error);
    if (request->variant_bytes)
        return fail(error, ERROR_INVALID_ARGUMENT, "FILES_OF_A_VARIANT",
                    "the request asks for files as they are and names a variant; leave out one of them");
    return artifact_files_open(spec->artifact, options, request->files, resolved, error);
}

/* One line for all of them: the first is mostly the only one, and `inspect` has the others. */
static void log_notes(const struct preparation *prep, const struct artifact *artifact)
{
    if (artifact->notes.n)
        log_at_of(LOG_WARN, "artifact_notes", prep->uid, LOG_TEXT("artifact", artifact->reference),
                  LOG_TEXT("note", artifact->notes.texts[0]), LOG_U64("notes", artifact->notes.n));
}

void prepare_resolve(struct preparation *prep, const struct load_request *request, struct artifact *artifact,
                     const struct cancel *cancel)
{
    const struct load_services *services = prep->services;
    const struct config *config = prep->config;
    struct load_spec *spec = &prep->spec;
    struct error *error = &prep->error;
    struct metadata_account before = metadata_enter(account_of(prep));
    const struct source_options options = load_services_source_options(services, config, prep->uid, cancel);
    struct artifact *resolved = artifact ? artifact_ref(artifact) : NULL;
    uint64_t start = clock_now_ns();
    if (load_spec_build(request, &config->engine.strategy, &prep->arena, spec, error) == 0 &&
        check_region(prep, error) == 0 && load_targets_find(services->targets, spec->device, &prep->target, error) == 0 &&
        (resolved || resolve_artifact(prep, request, &options, &resolved, error) == 0) &&
        (!request->variant_bytes || resolved->derivation || /* or it is one already */
         variant_apply(&resolved, request->variant, request->variant_bytes, services->headers, cancel, error) == 0))
        prep->mapping = build_mapping(prep, resolved);
    if (prep->mapping)
        log_notes(prep, resolved->stored ? resolved->stored : resolved);
    artifact_unref(resolved);
    prep->resolve_ns = clock_now_ns() - start;
    metadata_enter(before);
}

/* --- plan ----------------------------------------------------------------------------------------------------------- */

struct replica_key prepare_key(const struct preparation *prep)
{
    bool is_private = prep->spec.device && !prep->config->memory.share_gpu_between_users;
    return replica_key_of(prep->mapping, prep->target.device, is_private ? prep->uid : REPLICA_SHARED_BY_ALL);
}

bool prepare_is_of_group(const struct preparation *prep)
{
    const struct execution_topology *topology = &prep->spec.topology;
    return topology->has_group && topology->world_size > 1;
}

bool prepare_wants_group(const struct preparation *prep)
{
    const struct load_spec *spec = &prep->spec;
    return spec->topology.has_group && spec->policy.collective != COLLECTIVE_DISABLED &&
           prep->config->engine.strategy.enable_owner_file_collective;
}

struct plan_facts prepare_facts(const struct preparation *prep)
{
    const struct config *config = prep->config;
    struct engine *engine = prep->services->engine;
    struct source *source = prep->mapping->artifact->source;
    struct transport_supply transports = {.wish = config->engine.collective_transport};
    transports.n = transport_list(&transports.list);
    return (struct plan_facts){.strategy = &config->engine.strategy,
                               .costs = &prep->costs,
                               .source = source->caps,
                               .device = prep->target.device->caps,
                               .speed = engine_source_speed(engine, source),
                               .staging_budget_bytes = config->memory.staging_budget_bytes,
                               .host_budget_bytes = prep->spec.device || prep->is_lent ? 0 : prep->host_budget_bytes,
                               .extent_cache_bytes = engine_extent_cache_bytes(engine, !prepare_is_of_group(prep)),
                               .cached_share = prep->cached_share,
                               .mapped = &prep->mapped.facts,
                               .transports = transports,
                               .group_problem = prep->group_problem};
}

void prepare_plan_with(struct preparation *prep, const struct plan_facts *facts)
{
    struct metadata_account before = metadata_enter(account_of(prep));
    plan_destroy(prep->plan);
    prep->plan = plan_build(prep->mapping, &prep->spec, facts, &prep->error);
    metadata_enter(before);
}

/* --- the files themselves ------------------------------------------------------------------------------------------- */

static int check_verification(const struct preparation *prep, struct error *error)
{
    if (prep->config->sources.verify != VERIFY_REQUIRED)
        return 0;
    return fail(error, ERROR_FAILED_PRECONDITION, "VERIFICATION_REQUIRED",
                "sources.verify is required, and pages of files are handed out before anybody has read them");
}

/* Why nobody looks at the files; NULL = they are looked at. */
static const char *why_not_looked_at(const struct preparation *prep)
{
    if (prep->spec.device)
        return "pages of files are memory of the host, not of a GPU";
    if (prep->is_lent)
        return "the bytes go into memory of the client";
    return prep->goal == GOAL_REPLICA && prep->spec.memory == MEMORY_COPIED ? "copied memory was asked for" : NULL;
}

/* Identity last: what is opened then is what was resolved. */
static void open_files(struct preparation *prep, const struct cancel *cancel)
{
    struct mapped_question *mapped = &prep->mapped;
    const char *unseen = why_not_looked_at(prep);
    mapped_files_close(prep->files);
    prep->files = NULL;
    mapped->facts = (struct mapped_facts){.reason = unseen ? unseen : mapped->problem.message};
    if (unseen || check_verification(prep, &mapped->problem) != 0 ||
        mapped_files_open(prep->mapping, &prep->files, &mapped->problem) != 0 ||
        artifact_check_unchanged(prep->mapping->artifact, cancel, &mapped->problem) != 0)
        return;
    mapped->facts = (struct mapped_facts){.is_possible = true, .proof = prep->files->proof};
}

/* With the plan's estimate. -1: the request insists on what is not possible. */
static int choose_memory(struct preparation *prep)
{
    bool insists = prep->spec.memory == MEMORY_MAPPED, is_possible = prep->mapped.facts.is_possible;
    bool is_quicker = prep->plan->mapped.is_quicker && prep->mapping->view_bytes > 0;
    bool is_mapped = is_possible && prep->goal == GOAL_REPLICA && (insists || is_quicker);
    struct error no_ranges; /* then nothing is read ahead */
    if (is_mapped) {
        page_ranges_build(prep->plan, &prep->files->ranges, &no_ranges);
        prep->files->cached_share = prep->cached_share;
    } else {
        mapped_files_close(prep->files);
        prep->files = NULL;
    }
    if (!insists || is_possible || prep->goal == GOAL_PLAN)
        return 0;
    prep->error = prep->mapped.problem;
    return source_has_changed(&prep->error) ? -1 : error_append(&prep->error, "; memory auto would copy it");
}

bool prepare_may_find_pages(const struct preparation *prep)
{
    const struct load_spec *spec = &prep->spec;
    const struct source_caps *caps = &prep->mapping->artifact->source->caps;
    bool is_plain =
        prep->goal == GOAL_REPLICA && spec->policy.collective != COLLECTIVE_REQUIRED && !prepare_wants_group(prep);
    return spec->resident_only && spec->memory == MEMORY_AUTO && !prep->is_lent && is_plain && caps->residency;
}

void prepare_refuse_reading(struct preparation *prep)
{
    fail(&prep->error, ERROR_FAILED_PRECONDITION, REASON(NOT_RESIDENT), "%s is not in memory", prep->spec.artifact);
}

/* What is only explained needs none. */
static int read_scales(struct preparation *prep, const struct cancel *cancel)
{
    const struct scales_options options = {
        .cancel = cancel, .uid = prep->uid, .verifies = prep->config->sources.verify != VERIFY_NONE};
    return prep->goal == GOAL_PLAN ? 0 : scales_read(prep->mapping, &options, &prep->error);
}

void prepare_plan(struct preparation *prep, const struct cancel *cancel)
{
    struct metadata_account before = metadata_enter(account_of(prep));
    uint64_t start = clock_now_ns();
    bool is_for_pages = prepare_may_find_pages(prep);
    open_files(prep, cancel);
    prep->cached_share = is_for_pages && !prep->mapped.facts.is_possible ? 0 : residency_cached_share(prep->mapping);
    if (is_for_pages && prep->cached_share < 1) {
        prepare_refuse_reading(prep);
    } else {
        struct plan_facts facts = prepare_facts(prep);
        prepare_plan_with(prep, &facts);
    }
    if (prep->plan && (choose_memory(prep) < 0 || read_scales(prep, cancel) < 0)) {
        plan_destroy(prep->plan);
        prep->plan = NULL;
    }
    prep->plan_ns = clock_now_ns() - start;
    metadata_enter(before);
}
