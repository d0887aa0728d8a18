#include "client/report_json.h"

#include <stdbool.h>

#include "base/digest.h"
#include "base/json.h"

typedef Tensorcast__Daemon__V1__LoadReport load_report;
typedef Tensorcast__Daemon__V1__Candidate candidate_report;

static void write_text(struct json_writer *json, const char *key, const char *text)
{
    json_write_key(json, key);
    json_write_text(json, text);
}

static void write_u64(struct json_writer *json, const char *key, uint64_t value)
{
    json_write_key(json, key);
    json_write_u64(json, value);
}

static void write_ms(struct json_writer *json, const char *key, double value)
{
    json_write_key(json, key);
    json_write_double(json, value);
}

static void write_bool(struct json_writer *json, const char *key, bool value)
{
    json_write_key(json, key);
    json_write_bool(json, value);
}

static void write_candidate(struct json_writer *json, const candidate_report *candidate)
{
    json_write_open(json, '{');
    write_text(json, "executor", candidate->executor);
    write_bool(json, "eligible", candidate->eligible);
    write_text(json, "reason", candidate->reason);
    write_u64(json, "requested_bytes", candidate->requested_bytes);
    write_u64(json, "unique_source_bytes", candidate->unique_source_bytes);
    write_u64(json, "read_bytes", candidate->read_bytes);
    write_u64(json, "requests", candidate->requests);
    write_u64(json, "peak_temporary_bytes", candidate->peak_temporary_bytes);
    write_ms(json, "estimated_ms", candidate->estimated_ms);
    json_write_close(json, '}');
}

static void write_bytes(struct json_writer *json, const load_report *report)
{
    json_write_key(json, "bytes");
    json_write_open(json, '{');
    write_u64(json, "view", report->view_bytes);
    write_u64(json, "unique_source", report->unique_source_bytes);
    write_u64(json, "read", report->read_bytes);
    write_u64(json, "copied", report->copied_bytes);
    write_u64(json, "residual", report->residual_bytes);
    write_u64(json, "shared", report->shared_bytes);
    write_u64(json, "cached", report->cached_bytes);
    json_write_close(json, '}');
}

static void write_times(struct json_writer *json, const load_report *report)
{
    json_write_key(json, "ms");
    json_write_open(json, '{');
    write_ms(json, "resolve", report->resolve_ms);
    write_ms(json, "plan", report->plan_ms);
    write_ms(json, "execute", report->execute_ms);
    write_ms(json, "total", report->total_ms);
    json_write_close(json, '}');
}

static void write_digest(struct json_writer *json, const struct report_json_tensor *tensor)
{
    unsigned char bytes[DIGEST_BYTES];
    char hex[DIGEST_HEX_CHARS + 1];
    struct digest *digest = digest_create();
    digest_add(digest, tensor->data, tensor->bytes);
    digest_finish(digest, bytes);
    digest_hex(bytes, DIGEST_BYTES, hex);
    write_text(json, "sha256", hex);
}

static void write_tensor(struct json_writer *json, const struct report_json_tensor *tensor)
{
    json_write_open(json, '{');
    json_write_key(json, "name");
    json_write_string(json, tensor->name, tensor->name_length);
    write_text(json, "dtype", tensor->dtype);
    json_write_key(json, "shape");
    json_write_open(json, '[');
    for (size_t d = 0; d < tensor->rank; d++)
        json_write_u64(json, tensor->shape[d]);
    json_write_close(json, ']');
    write_u64(json, "offset", tensor->offset);
    write_u64(json, "bytes", tensor->bytes);
    if (tensor->data)
        write_digest(json, tensor);
    json_write_close(json, '}');
}

static void write_collective_numbers(struct json_writer *json, const Tensorcast__Daemon__V1__CollectiveNumbers *numbers)
{
    write_u64(json, "collective_unique_source_bytes", numbers->unique_source_bytes);
    write_u64(json, "collective_peer_transfer_bytes", numbers->peer_transfer_bytes);
    write_u64(json, "collective_peak_temporary_bytes", numbers->peak_temporary_bytes);
    write_u64(json, "collective_batch_count", numbers->batch_count);
    write_u64(json, "collective_dedup_saving_bytes", numbers->dedup_saving_bytes);
}

static void write_collective(struct json_writer *json, const Tensorcast__Daemon__V1__CollectiveReport *report)
{
    json_write_key(json, "collective");
    json_write_open(json, '{');
    write_text(json, "group_id", report->group_id);
    write_u64(json, "rank", (uint64_t)report->rank);
    write_u64(json, "world_size", (uint64_t)report->world_size);
    write_text(json, "transport", report->transport);
    write_text(json, "skip_reason", report->skip_reason);
    write_ms(json, "assemble_ms", report->assemble_ms);
    if (report->measured)
        write_collective_numbers(json, report->measured);
    if (report->estimated) {
        json_write_key(json, "estimated");
        json_write_open(json, '{');
        write_collective_numbers(json, report->estimated);
        json_write_close(json, '}');
    }
    json_write_close(json, '}');
}

static void write_verified(struct json_writer *json, const Tensorcast__Daemon__V1__Verification *verified)
{
    json_write_key(json, "verified");
    json_write_open(json, '{');
    write_text(json, "status", verified->status);
    write_text(json, "by", verified->by);
    write_u64(json, "bytes", verified->bytes);
    write_text(json, "reason", verified->reason);
    write_u64(json, "healed", verified->healed);
    json_write_close(json, '}');
}

/* What a plan has not: it was not run, so it has no id and no memory. */
static void write_run(struct json_writer *json, const load_report *report)
{
    if (report->load_id[0])
        write_text(json, "load_id", report->load_id);
    if (report->memory[0])
        write_text(json, "memory", report->memory);
    if (report->device[0])
        write_text(json, "device", report->device);
}

char *report_json(const load_report *report, const struct report_json_tensor *tensors, size_t n_tensors)
{
    struct json_writer json = {0};
    json_write_open(&json, '{');
    write_run(&json, report);
    write_text(&json, "artifact", report->artifact);
    write_text(&json, "identity", report->identity);
    write_text(&json, "executor", report->executor);
    write_text(&json, "selection_reason", report->selection_reason);
    json_write_key(&json, "candidates");
    json_write_open(&json, '[');
    for (size_t i = 0; i < report->n_candidates; i++)
        write_candidate(&json, report->candidates[i]);
    json_write_close(&json, ']');
    write_bytes(&json, report);
    write_u64(&json, "requests", report->requests);
    write_u64(&json, "peak_temporary_bytes", report->peak_temporary_bytes);
    write_bool(&json, "from_replica", report->from_replica);
    write_bool(&json, "joined", report->joined);
    write_times(&json, report);
    if (report->verified)
        write_verified(&json, report->verified);
    if (report->collective)
        write_collective(&json, report->collective);
    if (tensors) {
        json_write_key(&json, "tensors");
        json_write_open(&json, '[');
        for (size_t i = 0; i < n_tensors; i++)
            write_tensor(&json, &tensors[i]);
        json_write_close(&json, ']');
    }
    json_write_close(&json, '}');
    return json.text;
}
