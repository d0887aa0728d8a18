#include "load/prepare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/huge_pages.h"
#include "base/metadata.h"
#include "execute/residency.h"
#include "execute/engine.h"
#include "execute/scales.h"
#include "hosts/shared_block.h"
#include "load/rank_needs.h"
#include "observe/log.h"
#include "resolve/artifact.h"
#include "resolve/artifact_files.h"
#include "resolve/derivation.h"
#include "device/transport.h"
#include "variant/variant.h"

enum { SMALL_PAGE_BYTES = 4096, MAX_PADDING_PART = 4 };

void prepare_fini(struct preparation *prep)
{
    device_region_close(prep->region);
    mapped_files_close(prep->planned.files);
    plan_destroy(prep->planned.plan);
    free(prep->planned.needs);
    mapping_destroy(prep->resolved.mapping);
    arena_fini(&prep->resolved.arena);
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
    if (!prep->resolved.spec.device && prep->region->kind != DEVICE_REGION_HOST)
        return fail(error, ERROR_INVALID_ARGUMENT, "REGION_WITHOUT_DEVICE",
                    "the request offers memory to be filled but names no GPU that it is on");
    if (prep->resolved.spec.memory == MEMORY_MAPPED)
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

static struct mapping *build_mapping(const struct preparation *prep, struct artifact *artifact, struct load_spec *spec,
                                     struct error *error)
{
    struct view_spec *view = &spec->view;
    if (prep->goal == GOAL_REPLICA && !prep->region && !spec->device && spec->memory != MEMORY_MAPPED)
        view->budget_bytes = prep->host_budget_bytes;
    struct mapping *mapping = mapping_build(view, artifact, error);
    if (!mapping || mapping->placement == PLACEMENT_PACKED || is_worth_its_padding(mapping, prep->host_budget_bytes))
        return mapping;
    mapping_destroy(mapping);
    view->placement = PLACEMENT_PACKED;
    if (!view->align_bytes)
        view->align_bytes = VIEW_DEFAULT_ALIGN;
    return mapping_build(view, artifact, error);
}

static int resolve_artifact(const struct preparation *prep, const struct load_request *request,
                            const struct source_options *options, struct artifact **found, struct error *error)
{
    const struct load_spec *spec = &prep->resolved.spec;
    unsigned flags = (spec->allow_missing_shards ? RESOLVE_ALLOW_MISSING_SHARDS : 0) |
                     (request->variant_bytes ? 0 : RESOLVE_ALLOW_ABSENT_FILES); /* the view says which it needs */
    if (!request->files)
        return artifact_resolve(spec->artifact, options, prep->services->headers, flags, found, error);
    if (request->variant_bytes)
        return fail(error, ERROR_INVALID_ARGUMENT, "FILES_OF_A_VARIANT",
                    "the request asks for files as they are and names a variant; leave out one of them");
    return artifact_files_open(spec->artifact, options, request->files, found, error);
}

void prepare_resolve(const struct preparation *prep, const struct load_request *request, struct artifact *artifact,
                     const struct cancel *cancel, struct resolved *resolved)
{
    const struct load_services *services = prep->services;
    struct load_spec *spec = &resolved->spec;
    struct error *error = &resolved->error;
    struct metadata_account before = metadata_enter(account_of(prep));
    const struct source_options options = load_services_source_options(services, prep->config, prep->uid, cancel);
    struct artifact *found = artifact ? artifact_ref(artifact) : NULL;
    uint64_t start = clock_now_ns();
    if (load_spec_build(request, &prep->config->engine.strategy, &resolved->arena, spec, error) == 0 &&
        check_region(prep, error) == 0 &&
        load_targets_find(services->targets, spec->device, &resolved->target, error) == 0 &&
        (found || resolve_artifact(prep, request, &options, &found, error) == 0) &&
        (!request->variant_bytes || found->derivation || /* or it is one already */
         variant_apply(&found, request->variant, request->variant_bytes, services->headers, cancel, error) == 0))
        resolved->mapping = build_mapping(prep, found, spec, error);
    if (resolved->mapping) {
        const struct artifact *stored = found->stored ? found->stored : found;
        if (stored->notes.n) /* the first is mostly the only one, and `inspect` has the others */
            log_at_of(LOG_WARN, "artifact_notes", prep->uid, LOG_TEXT("artifact", stored->reference),
                      LOG_TEXT("note", stored->notes.texts[0]), LOG_U64("notes", stored->notes.n));
        /* the mapping says all that the view said */
        spec->view = (struct view_spec){.whole = spec->view.whole, .align_bytes = spec->view.align_bytes};
    }
    artifact_unref(found);
    resolved->ns = clock_now_ns() - start;
    metadata_enter(before);
}

/* --- plan ----------------------------------------------------------------------------------------------------------- */

struct replica_key prepare_key(const struct preparation *prep)
{
    const struct resolved *resolved = &prep->resolved;
    bool is_private = resolved->spec.device && !prep->config->memory.share_gpu_between_users;
    return replica_key_of(resolved->mapping, resolved->target.device, is_private ? prep->uid : REPLICA_SHARED_BY_ALL);
}

bool prepare_is_of_group(const struct preparation *prep)
{
    const struct execution_topology *topology = &prep->resolved.spec.topology;
    return topology->has_group && topology->world_size > 1;
}

bool prepare_wants_group(const struct preparation *prep)
{
    const struct load_spec *spec = &prep->resolved.spec;
    return spec->topology.has_group && spec->policy.collective != COLLECTIVE_DISABLED &&
           prep->config->engine.strategy.enable_owner_file_collective;
}

/* NULL: some of what is read is shared, and the rest is left to the source. */
static const char *why_unshared(const struct mapping *mapping)
{
    struct shared_file shared;
    const char *reason = NULL, *first = NULL;
    for (size_t i = 0; i < mapping->artifact->source->n_files; i++) {
        if (mapping->file_first[i] == mapping->file_first[i + 1])
            continue;
        if (shared_file_of(mapping->artifact->source, i, &shared, &reason))
            return NULL;
        first = first ? first : reason;
    }
    return first;
}

struct plan_facts prepare_facts(const struct preparation *prep, const struct planned *planned)
{
    const struct resolved *resolved = &prep->resolved;
    const struct config *config = prep->config;
    struct engine *engine = prep->services->engine;
    struct source *source = resolved->mapping->artifact->source;
    struct transport_supply transports = {.wish = config->engine.collective_transport};
    transports.n = transport_list(&transports.list);
    struct hosts_facts hosts = prep->hosts;
    hosts.unshared = hosts.is_on ? why_unshared(resolved->mapping) : NULL;
    struct source_speed speed = engine_source_speed(engine, source);
    if (source->caps.reads_are_requests) /* the other half are for blocks of its own */
        hosts.answers = remote_parallel_requests(&source->caps, &speed) / 2;
    return (struct plan_facts){.strategy = &config->engine.strategy,
                               .costs = &prep->costs,
                               .source = source->caps,
                               .device = resolved->target.device->caps,
                               .speed = speed,
                               .staging_budget_bytes = config->memory.staging_budget_bytes,
                               .host_budget_bytes = resolved->spec.device || prep->is_lent ? 0 : prep->host_budget_bytes,
                               .extent_cache_bytes = engine_extent_cache_bytes(engine, !prepare_is_of_group(prep)),
                               .cached_share = planned->cached_share,
                               .mapped = &planned->mapped,
                               .transports = transports,
                               .hosts = hosts,
                               .group_problem = prep->group_problem};
}

void prepare_plan_with(const struct preparation *prep, const struct plan_facts *facts, struct planned *planned)
{
    struct metadata_account before = metadata_enter(account_of(prep));
    plan_destroy(planned->plan);
    planned->plan = plan_build(prep->resolved.mapping, &prep->resolved.spec, facts, &planned->error);
    metadata_enter(before);
}

/* --- the files themselves ------------------------------------------------------------------------------------------- */

/* Why the files are not looked at; NULL = they are. */
static const char *why_not_looked_at(const struct preparation *prep)
{
    if (prep->resolved.spec.device)
        return "pages of files are memory of the host, not of a GPU";
    if (prep->is_lent)
        return "the bytes go into memory of the client";
    return prep->goal == GOAL_REPLICA && prep->resolved.spec.memory == MEMORY_COPIED ? "copied memory was asked for" : NULL;
}

/* Identity last: what is opened then is what was resolved. */
static void open_files(const struct preparation *prep, struct planned *planned)
{
    const struct mapping *mapping = prep->resolved.mapping;
    struct error *error = &planned->no_files;
    const char *unseen = why_not_looked_at(prep);
    mapped_files_close(planned->files);
    planned->files = NULL;
    planned->mapped = (struct mapped_facts){.reason = unseen ? unseen : error->message};
    if (unseen)
        return;
    if (prep->config->sources.verify == VERIFY_REQUIRED)
        fail(error, ERROR_FAILED_PRECONDITION, "VERIFICATION_REQUIRED",
             "sources.verify is required, and pages of files are handed out before they are read");
    else if (mapped_files_open(mapping, &planned->files, error) == 0 &&
             artifact_check_unchanged(mapping->artifact, error) == 0)
        planned->mapped = (struct mapped_facts){.is_possible = true, .proof = planned->files->proof};
}

/* With the plan's estimate. -1: the request insists on what is not possible. */
static int choose_memory(const struct preparation *prep, struct planned *planned)
{
    bool insists = prep->resolved.spec.memory == MEMORY_MAPPED, is_possible = planned->mapped.is_possible;
    bool is_quicker = planned->plan->mapped.is_quicker && prep->resolved.mapping->view_bytes > 0;
    bool is_mapped = is_possible && prep->goal == GOAL_REPLICA && (insists || is_quicker);
    struct error no_ranges; /* then nothing is read ahead */
    if (is_mapped) {
        page_ranges_build(planned->plan, &planned->files->ranges, &no_ranges);
        planned->files->cached_share = planned->cached_share;
    } else {
        mapped_files_close(planned->files);
        planned->files = NULL;
    }
    if (!insists || is_possible || prep->goal == GOAL_PLAN)
        return 0;
    planned->error = planned->no_files;
    return source_has_changed(&planned->error) ? -1 : error_append(&planned->error, "; memory auto would copy it");
}

bool prepare_may_find_pages(const struct preparation *prep)
{
    const struct load_spec *spec = &prep->resolved.spec;
    return spec->resident_only && spec->memory == MEMORY_AUTO && !prep->is_lent && prep->goal == GOAL_REPLICA &&
           spec->policy.collective != COLLECTIVE_REQUIRED && !prepare_wants_group(prep) &&
           prep->resolved.mapping->artifact->source->caps.residency;
}

void prepare_refuse_reading(const struct preparation *prep, struct error *error)
{
    fail(error, ERROR_FAILED_PRECONDITION, REASON(NOT_RESIDENT), "%s is not in memory", prep->resolved.spec.artifact);
}

/* Only where owners of blocks are asked they have something to read ahead. */
static char *write_needs(const struct preparation *prep, const struct plan *plan)
{
    struct rank_needs needs;
    char *text = NULL;
    if (!prepare_wants_group(prep) || prep->goal != GOAL_REPLICA || plan->hosts.way != HOSTS_OWNER_PEERS)
        return NULL;
    if (rank_needs_init(&needs, prep->resolved.mapping->artifact->source)) {
        rank_needs_add(&needs, prep->resolved.mapping);
        text = rank_needs_write(&needs);
    }
    rank_needs_fini(&needs);
    return text;
}

void prepare_plan(const struct preparation *prep, const struct cancel *cancel, struct planned *planned)
{
    struct metadata_account before = metadata_enter(account_of(prep));
    const struct scales_options scales = {
        .cancel = cancel, .uid = prep->uid, .verifies = prep->config->sources.verify != VERIFY_NONE};
    uint64_t start = clock_now_ns();
    bool is_for_pages = prepare_may_find_pages(prep);
    open_files(prep, planned);
    planned->cached_share =
        is_for_pages && !planned->mapped.is_possible ? 0 : residency_cached_share(prep->resolved.mapping);
    if (is_for_pages && planned->cached_share < 1) {
        prepare_refuse_reading(prep, &planned->error);
    } else {
        struct plan_facts facts = prepare_facts(prep, planned);
        prepare_plan_with(prep, &facts, planned);
    }
    if (planned->plan && (choose_memory(prep, planned) < 0 ||
                          (prep->goal != GOAL_PLAN && scales_read(prep->resolved.mapping, &scales, &planned->error) < 0))) {
        plan_destroy(planned->plan);
        planned->plan = NULL;
    }
    free(planned->needs);
    planned->needs = planned->plan ? write_needs(prep, planned->plan) : NULL;
    planned->ns = clock_now_ns() - start;
    metadata_enter(before);
}

enum {
    MAX_POLICY_CHARS = 512,
    MAX_ATTEMPT_CHARS = 1024,
    EXPLAIN_WAIT_MS = 500, /* for ranks that are explained at the same time: 15 s are too long for a plan */
};

static const char *policy_of(struct preparation *prep, const char *domain)
{
    static const char *const collective[] = {"auto", "required", "disabled"};
    static const char *const locality[] = {"auto", "host_local", "shared_source"};
    const struct load_spec *spec = &prep->resolved.spec;
    const struct execution_topology *topology = &spec->topology;
    const char *named = domain ? domain : topology->source_sharing_domain;
    char text[MAX_POLICY_CHARS];
    snprintf(text, sizeof text, "collective=%s executor=%s source_locality=%s source_sharing_domain=%s",
             collective[spec->policy.collective], executor_preference_names[spec->policy.executor],
             locality[topology->source_locality], named ? named : "");
    return arena_text(&prep->resolved.arena, text, strlen(text));
}

/* The same on every host that sees these files: what stores pin; of a mounted file what does not depend on the mount. */
static void digest_version(const struct artifact *artifact, char out[DIGEST_HEX_CHARS + 1])
{
    struct digest *digest = digest_create();
    for (size_t i = 0; i < artifact->source->n_files; i++) {
        const struct source_file *file = &artifact->source->files[i];
        digest_add_text(digest, file->name);
        digest_add_u64(digest, file->size_bytes);
        digest_add_u64(digest, file->version ? 0 : file->identity.mtime_ns);
        digest_add_text(digest, file->version ? file->version : "");
    }
    digest_add_text(digest, artifact->derivation ? artifact->derivation->digest : "");
    digest_finish_hex(digest, out);
}

static bool may_span_hosts(const struct preparation *prep, const char *domain)
{
    const struct execution_topology *topology = &prep->resolved.spec.topology;
    const char *named = topology->source_sharing_domain;
    return domain && prep->goal == GOAL_REPLICA && topology->world_size > 1 &&
           (topology->source_locality == LOCALITY_SHARED_SOURCE || (named && topology->source_locality == LOCALITY_AUTO)) &&
           (!named || strcmp(named, domain) == 0) &&
           prep->resolved.mapping->artifact->source->caps.filesystem == SOURCE_NETWORK;
}

struct group_terms prepare_group_terms(struct preparation *prep, uid_t uid, uid_t owner, const char *domain)
{
    const struct execution_topology *topology = &prep->resolved.spec.topology;
    const struct artifact *artifact = prep->resolved.mapping->artifact;
    struct arena *arena = &prep->resolved.arena;
    bool is_plan = prep->goal == GOAL_PLAN;
    uint64_t timeout_ms = prep->config->engine.strategy.owner_file_collective_group_assemble_timeout_ms;
    char version[DIGEST_HEX_CHARS + 1] = "";
    domain = may_span_hosts(prep, domain) ? domain : NULL;
    if (domain)
        digest_version(artifact, version);
    return (struct group_terms){.uid = uid,
                                .owner = owner,
                                .id = topology->group_id,
                                .purpose = is_plan ? "explain" : "load",
                                .world_size = topology->world_size,
                                .reference = artifact->reference,
                                .artifact = artifact->source_key,
                                .files = artifact->stored ? artifact->stored->identity : artifact->identity,
                                .policy = policy_of(prep, domain),
                                .domain = domain,
                                .shared_version = domain ? arena_text(arena, version, DIGEST_HEX_CHARS) : NULL,
                                .timeout_ms = is_plan && timeout_ms > EXPLAIN_WAIT_MS ? EXPLAIN_WAIT_MS : timeout_ms};
}

const char *prepare_group_attempt(struct preparation *prep, const struct group_terms *terms)
{
    char text[MAX_ATTEMPT_CHARS];
    const char *attempt = prep->resolved.spec.topology.attempt;
    if (!attempt || prep->goal == GOAL_PLAN || prep->is_lent)
        return NULL;
    snprintf(text, sizeof text, "%s %s %s %zu %s %s", terms->artifact, prep->resolved.mapping->view_digest,
             prep->resolved.target.device->caps.name, strlen(attempt), attempt, terms->policy);
    return arena_text(&prep->resolved.arena, text, strlen(text));
}
