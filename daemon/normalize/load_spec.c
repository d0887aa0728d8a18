/* A wire request and the configuration become one load_spec. Whatever is wrong whatever the source holds is refused here,
 * as INVALID_ARGUMENT; what depends on the artifact (names, ranks, bounds) is resolve's business.
 *
 * The items of the view stay the request's: they may be megabytes, and are needed only until the mapping is built. All else
 * is copied, because a load outlives the request of its first client. */
#include "normalize/load_spec.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/redact.h"
#include "base/text.h"

enum { MAX_ARTIFACT_BYTES = 4096, MAX_GROUP_TEXT_BYTES = 255, MAX_DEVICE_BYTES = 63, MAX_WORLD_SIZE = 1 << 16 };

static int check_enum(const char *what, int value, int last, struct error *error)
{
    if (value >= 0 && value <= last)
        return 0;
    return fail(error, ERROR_INVALID_ARGUMENT, "UNKNOWN_ENUM_VALUE", "%s %d is not known; the last known value is %d", what,
                value, last);
}

static size_t scheme_length(const char *reference)
{
    size_t length = 0;
    while (isalnum((unsigned char)reference[length]) || (length && reference[length] && strchr("+-.", reference[length])))
        length++;
    return reference[length] == ':' ? length : 0;
}

static int check_artifact(const char *reference, struct error *error)
{
    char shown[TEXT_NAME_CHARS];
    if (!reference || !*reference)
        return fail(error, ERROR_INVALID_ARGUMENT, "ARTIFACT_MISSING", "the request names no artifact; expected disk:/path");
    size_t length = strlen(reference);
    char *secretless = redact_copy(reference);
    text_escape(secretless, strlen(secretless), shown);
    free(secretless);
    if (length > MAX_ARTIFACT_BYTES)
        return fail(error, ERROR_INVALID_ARGUMENT, "ARTIFACT_TOO_LONG",
                    "artifact reference %s has %zu bytes, at most %d are allowed", shown, length, MAX_ARTIFACT_BYTES);
    size_t scheme = scheme_length(reference);
    if (scheme == 0)
        return fail(error, ERROR_INVALID_ARGUMENT, "ARTIFACT_WITHOUT_SCHEME",
                    "artifact %s has no scheme; write disk:%s for a path on this host", shown, shown);
    if (scheme + 1 == length)
        return fail(error, ERROR_INVALID_ARGUMENT, "ARTIFACT_WITHOUT_PATH", "artifact %s names no path after its scheme",
                    shown);
    return 0;
}

static int build_policy(const struct load_request *request, const struct materialization_strategy *strategy,
                        struct retrieval_policy *policy, struct error *error)
{
    if (check_enum("executor preference", request->executor, EXECUTOR_PREFERENCE_OWNER_FILE_COLLECTIVE, error) ||
        check_enum("collective policy", request->collective, COLLECTIVE_DISABLED, error))
        return -1;
    policy->collective = (enum collective_policy)request->collective;
    policy->executor_from_request = request->executor != EXECUTOR_PREFERENCE_AUTO;
    policy->executor =
        policy->executor_from_request ? (enum executor_preference)request->executor : strategy->executor_preference;
    bool other_executor = policy->executor_from_request && policy->executor != EXECUTOR_PREFERENCE_OWNER_FILE_COLLECTIVE;
    if (policy->collective == COLLECTIVE_REQUIRED && other_executor)
        return fail(error, ERROR_INVALID_ARGUMENT, "CONTRADICTING_POLICY",
                    "the request requires a collective load and asks for executor %s, which is none; drop one of them",
                    executor_preference_names[policy->executor]);
    return 0;
}

/* An identifier of a group or a domain: not empty, not long. */
static int copy_identifier(const char *what, const char *text, struct arena *arena, const char **copy, struct error *error)
{
    size_t length = text ? strlen(text) : 0;
    if (length == 0)
        return fail(error, ERROR_INVALID_ARGUMENT, "GROUP_WITHOUT_ID", "the %s is empty", what);
    if (length > MAX_GROUP_TEXT_BYTES) {
        char shown[TEXT_NAME_CHARS];
        return fail(error, ERROR_INVALID_ARGUMENT, "GROUP_ID_TOO_LONG", "the %s %s has %zu bytes, at most %d are allowed",
                    what, text_escape(text, length, shown), length, MAX_GROUP_TEXT_BYTES);
    }
    *copy = arena_text(arena, text, length);
    return 0;
}

static int build_group(const struct load_request *request, struct arena *arena, struct execution_topology *topology,
                       struct error *error)
{
    if (copy_identifier("group id", request->group_id, arena, &topology->group_id, error))
        return -1;
    if (request->world_size < 1 || request->world_size > MAX_WORLD_SIZE)
        return fail(error, ERROR_INVALID_ARGUMENT, "WORLD_SIZE_OUT_OF_RANGE",
                    "world size %" PRId64 " of the group is not in 1..%d", request->world_size, MAX_WORLD_SIZE);
    if (request->rank < 0 || request->rank >= request->world_size)
        return fail(error, ERROR_INVALID_ARGUMENT, "RANK_OUT_OF_RANGE",
                    "rank %" PRId64 " is outside the group: its world size is %" PRId64 ", so ranks are 0..%" PRId64,
                    request->rank, request->world_size, request->world_size - 1);
    if (request->attempt && *request->attempt &&
        copy_identifier("group attempt", request->attempt, arena, &topology->attempt, error))
        return -1;
    topology->has_group = true;
    topology->rank = (uint32_t)request->rank;
    topology->world_size = (uint32_t)request->world_size;
    return 0;
}

static int build_topology(const struct load_request *request, struct arena *arena, struct execution_topology *topology,
                          struct error *error)
{
    if (check_enum("source locality", request->source_locality, LOCALITY_SHARED_SOURCE, error))
        return -1;
    topology->source_locality = (enum source_locality)request->source_locality;
    if (request->source_sharing_domain && *request->source_sharing_domain &&
        copy_identifier("source sharing domain", request->source_sharing_domain, arena, &topology->source_sharing_domain,
                        error))
        return -1;
    return request->has_group ? build_group(request, arena, topology, error) : 0;
}

/* PLACEMENT_SOURCE is of use where disks write to memory of this host, and where tensors do not have their places already. */
static int choose_placement(const struct load_request *request, struct load_spec *spec, struct error *error)
{
    struct view_spec *view = &spec->view;
    if (check_enum("placement", request->view.placement, PLACEMENT_N - 1, error))
        return -1;
    if (spec->device || view->targets)
        view->placement = PLACEMENT_PACKED;
    if (!view->align_bytes && view->placement == PLACEMENT_PACKED)
        view->align_bytes = VIEW_DEFAULT_ALIGN;
    return 0;
}

static int build_view(const struct view_spec *from, struct view_spec *view, struct error *error)
{
    *view = *from;
    if (view->align_bytes > VIEW_MAX_ALIGN || (view->align_bytes & (view->align_bytes - 1)))
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_ALIGNMENT",
                    "alignment %" PRIu64 " of the view is no power of two from 1 to %d", view->align_bytes, VIEW_MAX_ALIGN);
    if (!view->whole && from->n_items == 0)
        return fail(error, ERROR_INVALID_ARGUMENT, "EMPTY_VIEW",
                    "the view names no tensor; leave the view out to load the whole artifact");
    return 0;
}

static int build_device(const struct load_request *request, struct arena *arena, struct load_spec *spec, struct error *error)
{
    const char *device = request->device;
    if (!device || !*device || strcmp(device, "cpu") == 0 || strcmp(device, "cpu:0") == 0)
        return 0;
    size_t length = strlen(device);
    if (length > MAX_DEVICE_BYTES)
        return fail(error, ERROR_INVALID_ARGUMENT, "DEVICE_TOO_LONG", "a device's name has at most %d bytes, not %zu",
                    MAX_DEVICE_BYTES, length);
    spec->device = arena_text(arena, device, length);
    return 0;
}

/* A GPU has no pages of files, and memory of the client is filled. */
static int build_memory(const struct load_request *request, struct load_spec *spec, struct error *error)
{
    bool has_place = spec->device || spec->view.targets;
    if (check_enum("memory preference", request->memory, MEMORY_MAPPED, error))
        return -1;
    if (request->memory == MEMORY_MAPPED && has_place)
        return fail(
            error, ERROR_INVALID_ARGUMENT, "MAPPED_ELSEWHERE",
            "the request asks for mapped files and names %s; files are mapped in host memory of their own, drop one of "
            "them",
            spec->device ? "a device" : "targets");
    bool is_copied = request->memory == MEMORY_UNSPECIFIED || has_place;
    spec->memory = is_copied ? MEMORY_COPIED : (enum memory_preference)request->memory;
    return 0;
}

int load_spec_build(const struct load_request *request, const struct materialization_strategy *strategy, struct arena *arena,
                    struct load_spec *spec, struct error *error)
{
    *spec = (struct load_spec){0};
    if (check_artifact(request->artifact, error) || build_policy(request, strategy, &spec->policy, error) ||
        build_topology(request, arena, &spec->topology, error) || build_view(&request->view, &spec->view, error) ||
        build_device(request, arena, spec, error) || build_memory(request, spec, error) ||
        choose_placement(request, spec, error))
        return -1;
    spec->artifact = arena_text(arena, request->artifact, strlen(request->artifact));
    spec->allow_missing_shards = request->allow_missing_shards;
    spec->resident_only = request->resident_only;
    return 0;
}
