/* The daemon's own stages in this process: resolve -> load_spec -> mapping -> plan -> engine -> seal, with a loop that runs
 * for the length of one load. No roots are enforced and relative paths work, because the files are opened with the rights
 * of whoever typed the command. Nothing is cached: every resolve checks every header. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "backend.h"
#include "base/clock.h"
#include "base/loop.h"
#include "base/memory.h"
#include "base/text.h"
#include "checked.h"
#include "client/report_json.h"
#include "config/config.h"
#include "device/device.h"
#include "calibration/calibration.h"
#include "execute/engine.h"
#include "calibration/residency.h"
#include "integrity/verify.h"
#include "interrupt.h"
#include "normalize/load_spec.h"
#include "plan/explain.h"
#include "plan/plan.h"
#include "resolve/artifact.h"
#include "resolve/mapping.h"
#include "api/report_fill.h"
#include "source/stores.h"
#include "sidecar_copy.h"

struct standalone {
    struct backend *backend;
    struct arena arena;    /* the spec and the report */
    struct stores *stores; /* only once something else than disk: is asked for */
    struct artifact *artifact;
    struct device *device;
    struct calibration *calibration;
    struct load_spec spec;
    struct mapping *mapping;
    struct plan_facts facts;
    struct cost_constants costs;
    struct plan *plan;
    struct segment *segment;
    struct loop *loop;
    struct engine *engine;
    struct run *run;
    struct verdict verdict;
    bool failed; /* `error` says why the run ended */
    struct error error;
    uint64_t start_ns, resolve_ns, plan_ns;
};

/* --- life --- */

static int standalone_open(struct backend *backend, struct error *error)
{
    struct standalone *state = memory_alloc(sizeof *state);
    state->backend = backend;
    state->start_ns = clock_now_ns();
    backend->state = state;
    if (backend->args->device)
        return fail(error, ERROR_INVALID_ARGUMENT, "STANDALONE_DEVICE",
                    "--standalone loads into host memory only; leave out --device");
    return 0;
}

/* In the order the headers demand: runs before their engine, segments before their device. */
static void standalone_close(struct backend *backend)
{
    struct standalone *state = backend->state;
    run_destroy(state->run);
    segment_unref(state->segment);
    if (state->engine)
        engine_destroy(state->engine);
    if (state->loop)
        loop_destroy(state->loop);
    if (state->calibration)
        calibration_destroy(state->calibration);
    if (state->device)
        device_destroy(state->device);
    plan_destroy(state->plan);
    mapping_destroy(state->mapping);
    artifact_unref(state->artifact);
    stores_destroy(state->stores);
    arena_fini(&state->arena);
    free(state);
}

/* --- resolve and plan --- */

/* Stores take their settings from the environment alone: there is no configuration here. */
static int find_options(struct standalone *state, struct source_options *options, struct error *error)
{
    bool is_remote = source_is_remote(state->backend->args->artifact);
    if (is_remote && !state->stores &&
        stores_create(config_defaults(), &state->backend->cancel, &state->stores, error) < 0)
        return -1;
    *options = (struct source_options){.allow_relative = true, .stores = state->stores, .uid = getuid()};
    return 0;
}

static int find_artifact(struct standalone *state, struct error *error)
{
    struct source_options options;
    uint64_t before_ns = clock_now_ns(), left_ms;
    if (state->artifact)
        return 0;
    if (find_options(state, &options, error) < 0 ||
        artifact_resolve(state->backend->args->artifact, &options, NULL, true, &state->artifact, error) < 0)
        return backend_fail(state->backend, error);
    state->resolve_ns = clock_now_ns() - before_ns;
    return backend_time_left(state->backend, &left_ms, error);
}

static struct catalog *standalone_resolve(struct backend *backend, int flags, struct error *error)
{
    struct standalone *state = backend->state;
    (void)flags; /* nothing is cached, and indexes are made when they are asked for */
    return find_artifact(state, error) < 0 ? NULL : catalog_from_disk(artifact_ref(state->artifact));
}

static struct view_spec view_spec_from(const struct tc_view *view, struct arena *arena)
{
    if (!view)
        return (struct view_spec){.whole = true};
    struct view_item *items = arena_array(arena, view->n_items, sizeof *items);
    for (size_t i = 0; i < view->n_items; i++) {
        const struct tc_view_item *from = &view->items[i];
        struct slice *slices = arena_array(arena, from->n_slices, sizeof *slices);
        for (size_t d = 0; d < from->n_slices; d++)
            slices[d] = (struct slice){from->slices[d].start, from->slices[d].stop};
        items[i] = (struct view_item){from->name, strlen(from->name), (uint32_t)from->n_slices, slices};
    }
    return (struct view_spec){.items = items, .n_items = view->n_items, .align_bytes = view->align_bytes};
}

static int build_spec(struct standalone *state, const struct tc_view *view, struct error *error)
{
    const struct args *args = state->backend->args;
    const struct load_request request = {
        .artifact = args->artifact,
        .view = view_spec_from(view, &state->arena),
        .executor = args->executor,
        .collective = args->collective,
        .has_group = args->group,
        .group_id = args->group,
        .rank = args->rank,
        .world_size = args->world_size,
        .source_locality = args->source_locality,
        .source_sharing_domain = args->source_sharing_domain,
    };
    return load_spec_build(&request, &config_defaults()->engine.strategy, &state->arena, &state->spec, error);
}

static void gather_facts(struct standalone *state)
{
    const struct source_caps *source = &state->artifact->source->caps;
    struct source_speed speed;
    source_speed(state->artifact->source, &speed);
    state->device = device_host_create(0);
    state->calibration = calibration_create(NULL);
    state->costs = calibration_get(state->calibration, source->device_id);
    state->facts = (struct plan_facts){
        .strategy = &config_defaults()->engine.strategy,
        .costs = &state->costs,
        .source = *source,
        .speed = speed,
        .device = state->device->caps,
        .staging_budget_bytes = config_defaults()->memory.staging_budget_bytes,
        .extent_cache_bytes = 0, /* one load by itself */
        .cached_share = residency_cached_share(state->mapping),
    };
}

static int plan_view(struct standalone *state, const struct tc_view *view, struct error *error)
{
    if (build_spec(state, view, error) < 0 || find_artifact(state, error) < 0)
        return -1;
    uint64_t before_ns = clock_now_ns();
    state->mapping = mapping_build(&state->spec.view, state->artifact, error);
    if (!state->mapping)
        return -1;
    gather_facts(state);
    state->plan = plan_build(state->mapping, &state->spec, &state->facts, error);
    state->plan_ns = clock_now_ns() - before_ns;
    return state->plan ? 0 : -1;
}

/* --- execute --- */

static uint64_t available_bytes(void)
{
    unsigned long long kib = UINT64_MAX >> 10;
    char line[128];
    FILE *meminfo = fopen("/proc/meminfo", "re");
    while (meminfo && fgets(line, sizeof line, meminfo) && sscanf(line, "MemAvailable: %llu kB", &kib) != 1)
        continue;
    if (meminfo)
        fclose(meminfo);
    return (uint64_t)kib << 10;
}

static int allocate(struct standalone *state, struct error *error)
{
    uint64_t needed = state->mapping->replica_bytes, available = available_bytes();
    if (needed > available) {
        char need[TEXT_SIZE_CHARS], have[TEXT_SIZE_CHARS];
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "NOT_ENOUGH_MEMORY",
                    "the view needs %s of memory and %s are available; load fewer tensors, or slices of them",
                    text_people_bytes(needed, need), text_people_bytes(available, have));
    }
    return device_allocate(state->device, needed, &state->segment, error);
}

static void on_done(struct run *run, void *data, const struct error *error)
{
    struct standalone *state = data;
    (void)run;
    state->failed = error;
    if (error)
        state->error = *error;
    loop_stop(state->loop);
}

static void on_tick(void *data)
{
    struct standalone *state = data;
    if (cancel_is_set(&state->backend->cancel))
        run_cancel(state->run);
    else
        progress_show(&state->backend->progress, "read", run_done_bytes(state->run), state->mapping->view_bytes);
}

enum { TICK_MS = 10 };

static int execute(struct standalone *state, struct error *error)
{
    uint64_t left_ms;
    state->loop = loop_create();
    const struct engine_options options = {.loop = state->loop, .staging_budget_bytes = state->facts.staging_budget_bytes};
    if (engine_create(&options, &state->engine, error) < 0)
        return -1;
    struct loop_timer *timer = loop_timer_create(state->loop, on_tick, state);
    state->run = run_start(state->engine, &(struct run_options){.mapping = state->mapping,
                                                                .plan = state->plan,
                                                                .segment = state->segment,
                                                                .done = on_done,
                                                                .data = state,
                                                                .uid = getuid()});
    loop_timer_start(timer, TICK_MS, TICK_MS);
    loop_run(state->loop);
    loop_timer_destroy(timer);
    if (backend_time_left(state->backend, &left_ms, error) < 0)
        return -1;
    if (state->failed)
        *error = state->error;
    return state->failed ? -1 : 0;
}

/* --- results --- */

static Tensorcast__Daemon__V1__LoadReport *report(struct standalone *state)
{
    char load_id[2 * sizeof(uint64_t) + 1];
    uint64_t random = state->start_ns;
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) < 0)
        random = state->start_ns;
    snprintf(load_id, sizeof load_id, "%016" PRIx64, random);
    const struct report_facts facts = {
        .load_id = load_id,
        .mapping = state->mapping,
        .plan = state->plan,
        .run = state->run ? run_report(state->run) : NULL,
        .verdict = state->run ? &state->verdict : NULL,
        .memory = state->run ? page_kind_name(device_page_kind(state->segment)) : NULL,
        .resolve_ms = clock_ms(state->resolve_ns),
        .plan_ms = clock_ms(state->plan_ns),
        .total_ms = clock_ms(clock_now_ns() - state->start_ns),
        .topology = &state->spec.topology,
    };
    return report_fill(&facts, &state->arena);
}

static void describe_tensors(const struct standalone *state, struct loaded *loaded)
{
    const struct mapping *mapping = state->mapping;
    loaded->n_tensors = mapping->n_tensors;
    loaded->tensors = memory_alloc_array(mapping->n_tensors + 1, sizeof *loaded->tensors);
    for (size_t i = 0; i < mapping->n_tensors; i++) {
        const struct view_tensor *tensor = &mapping->tensors[i];
        loaded->tensors[i] = (struct loaded_tensor){.name = tensor->record->name,
                                                    .name_length = tensor->record->name_length,
                                                    .dtype = dtype_name(tensor->record->dtype),
                                                    .shape = tensor->shape,
                                                    .rank = tensor->record->rank,
                                                    .data = (const char *)state->segment->host_address + tensor->offset,
                                                    .bytes = tensor->bytes};
    }
}

static char *load_json(struct standalone *state, const struct loaded *loaded, bool with_digests)
{
    struct report_json_tensor *tensors = memory_alloc_array(loaded->n_tensors + 1, sizeof *tensors);
    for (size_t i = 0; i < loaded->n_tensors; i++) {
        const struct loaded_tensor *from = &loaded->tensors[i];
        tensors[i] = (struct report_json_tensor){.name = from->name,
                                                 .name_length = from->name_length,
                                                 .dtype = from->dtype,
                                                 .shape = from->shape,
                                                 .rank = from->rank,
                                                 .offset = state->mapping->tensors[i].offset,
                                                 .bytes = from->bytes,
                                                 .data = with_digests ? from->data : NULL};
    }
    char *json = report_json(report(state), tensors, loaded->n_tensors);
    free(tensors);
    return json;
}

static int verify(struct standalone *state, struct error *error)
{
    const struct verify_options options = {.mapping = state->mapping,
                                           .segment = state->segment,
                                           .run = state->run,
                                           .policy = config_defaults()->verify,
                                           .cancel = &state->backend->cancel,
                                           .uid = getuid()};
    return verify_load(&options, &state->verdict, error) < 0 ? backend_fail(state->backend, error) : 0;
}

static int standalone_load(struct backend *backend, const struct tc_view *view, struct loaded *loaded, struct error *error)
{
    struct standalone *state = backend->state;
    interrupt_defer(NULL);
    if (plan_view(state, view, error) < 0 || allocate(state, error) < 0 || execute(state, error) < 0 ||
        artifact_check_unchanged(state->artifact, error) < 0 || verify(state, error) < 0 ||
        device_seal(state->segment, error) < 0)
        return -1;
    describe_tensors(state, loaded);
    loaded->owner = state;
    loaded->report_json = load_json(state, loaded, backend->args->digest);
    return 0;
}

/* The memory itself goes with the backend. */
static void standalone_release(struct backend *backend, struct loaded *loaded)
{
    (void)backend;
    free(loaded->tensors);
    free(loaded->report_json);
}

static int standalone_explain(struct backend *backend, const struct tc_view *view, char **json, char **text,
                              struct error *error)
{
    struct standalone *state = backend->state;
    if (plan_view(state, view, error) < 0)
        return -1;
    *json = report_json(report(state), NULL, 0);
    *text = explain_text(state->plan, state->mapping, &state->facts);
    return 0;
}

static int standalone_fetch_sidecars(struct backend *backend, const char *folder, const struct sidecar_taker *taker,
                                     struct error *error)
{
    struct standalone *state = backend->state;
    struct source_options options;
    interrupt_defer(NULL);
    return find_options(state, &options, error) < 0 ? -1 : sidecar_copy(backend, &options, folder, taker, error);
}

static struct checked *standalone_verify(struct backend *backend, bool with_manifest, struct error *error)
{
    struct standalone *state = backend->state;
    interrupt_defer(NULL);
    return find_artifact(state, error) < 0 ? NULL : checked_here(backend, state->artifact, with_manifest, error);
}

const struct backend_ops backend_standalone = {
    .name = "standalone",
    .open = standalone_open,
    .resolve = standalone_resolve,
    .load = standalone_load,
    .explain = standalone_explain,
    .fetch_sidecars = standalone_fetch_sidecars,
    .verify = standalone_verify,
    .release = standalone_release,
    .close = standalone_close,
};
