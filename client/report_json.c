#include "client/report_json.h"

#include "message/message_json.h"

typedef Tensorcast__Daemon__V1__LoadReport load_report;

/* A plan has no id. What it expects is not told under the names of what a load has measured. */
static bool was_run(const load_report *report)
{
    return report->load_id[0] != '\0';
}

struct tensor_bytes report_json_elements(const struct report_json_tensor *tensor)
{
    return (struct tensor_bytes){tensor->data, tensor->shape, tensor->strides, tensor->rank, tensor->bytes};
}

static int add_piece(void *digest, const void *piece, size_t bytes)
{
    digest_add(digest, piece, bytes);
    return 0;
}

void report_json_digest(const struct report_json_tensor *tensor, char hex[DIGEST_HEX_CHARS + 1])
{
    struct digest *digest = digest_create();
    const struct tensor_bytes elements = report_json_elements(tensor);
    tensor_bytes_walk(&elements, add_piece, digest);
    digest_finish_hex(digest, hex);
}

static void write_tensor(struct json_writer *json, const struct report_json_tensor *tensor, bool with_digest)
{
    json_write_open(json, '{');
    json_put_string(json, "name", tensor->name, tensor->name_length);
    json_put_text(json, "dtype", tensor->dtype);
    json_put_open(json, "shape", '[');
    for (size_t d = 0; d < tensor->rank; d++)
        json_write_u64(json, tensor->shape[d]);
    json_write_close(json, ']');
    json_put_u64(json, "offset", tensor->offset);
    json_put_u64(json, "bytes", tensor->bytes);
    if (tensor->file)
        json_put_text(json, "file", tensor->file);
    if (tensor->strides) {
        json_put_open(json, "strides", '[');
        for (size_t d = 0; d < tensor->rank; d++)
            json_write_u64(json, tensor->strides[d]);
        json_write_close(json, ']');
    }
    if (with_digest && tensor->data) {
        char hex[DIGEST_HEX_CHARS + 1];
        report_json_digest(tensor, hex);
        json_put_text(json, "sha256", hex);
    }
    json_write_close(json, '}');
}

static void write_collective_numbers(struct json_writer *json, const Tensorcast__Daemon__V1__CollectiveNumbers *numbers)
{
    json_put_u64(json, "collective_unique_source_bytes", numbers->unique_source_bytes);
    json_put_u64(json, "collective_peer_transfer_bytes", numbers->peer_transfer_bytes);
    json_put_u64(json, "collective_peak_temporary_bytes", numbers->peak_temporary_bytes);
    json_put_u64(json, "collective_batch_count", numbers->batch_count);
    json_put_u64(json, "collective_dedup_saving_bytes", numbers->dedup_saving_bytes);
}

static void write_collective(struct json_writer *json, const Tensorcast__Daemon__V1__CollectiveReport *report)
{
    json_put_open(json, "collective", '{');
    message_json_put(json, &report->base, 0);
    if (report->measured)
        write_collective_numbers(json, report->measured);
    if (report->estimated) {
        json_put_open(json, "estimated", '{');
        write_collective_numbers(json, report->estimated);
        json_write_close(json, '}');
    }
    json_write_close(json, '}');
}

static void write_hosts(struct json_writer *json, const Tensorcast__Daemon__V1__HostsReport *hosts, bool has_run)
{
    json_put_open(json, "hosts", '{');
    json_put_text(json, "choice", hosts->choice);
    json_put_text(json, "reason", hosts->reason);
    json_put_u64(json, "alive", hosts->alive);
    if (hosts->n_candidates)
        message_json_put_list(json, "candidates", (ProtobufCMessage *const *)hosts->candidates, hosts->n_candidates);
    if (has_run) {
        json_put_open(json, "from", '{');
        for (size_t i = 0; i < hosts->n_from_hosts; i++)
            json_put_u64(json, hosts->from_hosts[i]->host, hosts->from_hosts[i]->bytes);
        json_write_close(json, '}');
        json_put_u64(json, "hedged_bytes", hosts->hedged_bytes);
    }
    json_write_close(json, '}');
}

char *report_json(const load_report *report, const struct report_json_tensor *tensors, size_t n_tensors, bool with_digests)
{
    struct json_writer json = {0};
    json_write_open(&json, '{');
    /* What a plan has not: it was not run, so it has no id and no memory. */
    if (was_run(report))
        json_put_text(&json, "load_id", report->load_id);
    if (report->memory[0])
        json_put_text(&json, "memory", report->memory);
    if (report->device[0])
        json_put_text(&json, "device", report->device);
    json_put_text(&json, "artifact", report->artifact);
    json_put_text(&json, "identity", report->identity);
    json_put_text(&json, "executor", report->executor);
    json_put_text(&json, "selection_reason", report->selection_reason);
    message_json_put_list(&json, "candidates", (ProtobufCMessage *const *)report->candidates, report->n_candidates);
    json_put_open(&json, "bytes", '{');
    json_put_u64(&json, "view", report->view_bytes);
    json_put_u64(&json, "unique_source", report->unique_source_bytes);
    if (was_run(report))
        json_put_u64(&json, "read", report->read_bytes);
    json_put_u64(&json, "copied", report->copied_bytes);
    json_put_u64(&json, "residual", report->residual_bytes);
    json_put_u64(&json, "shared", report->shared_bytes);
    json_put_u64(&json, "cached", report->cached_bytes);
    json_put_u64(&json, "peer", report->peer_bytes);
    if (report->into)
        json_put_u64(&json, "target", report->target_bytes);
    json_write_close(&json, '}');
    json_put_u64(&json, "requests", report->requests);
    json_put_u64(&json, "peak_temporary_bytes", report->peak_temporary_bytes);
    json_put_bool(&json, "from_replica", report->from_replica);
    json_put_bool(&json, "joined", report->joined);
    json_put_open(&json, "ms", '{');
    json_put_double(&json, "resolve", report->resolve_ms);
    json_put_double(&json, "plan", report->plan_ms);
    if (was_run(report))
        json_put_double(&json, "execute", report->execute_ms);
    json_put_double(&json, "total", report->total_ms);
    json_write_close(&json, '}');
    if (!was_run(report)) {
        json_put_open(&json, "estimated", '{');
        json_put_u64(&json, "read_bytes", report->read_bytes);
        json_put_double(&json, "execute_ms", report->execute_ms);
        json_write_close(&json, '}');
    }
    if (report->change_detection)
        message_json_put_object(&json, "change_detection", &report->change_detection->base, 0);
    if (report->verified)
        message_json_put_object(&json, "verified", &report->verified->base, 0);
    if (report->mapped) {
        json_put_open(&json, "mapped", '{');
        json_put_bool(&json, "possible", report->mapped->possible);
        json_put_text_or_null(&json, "proof", report->mapped->proof);
        json_put_text_or_null(&json, "reason", report->mapped->reason);
        json_write_close(&json, '}');
    }
    if (report->hosts)
        write_hosts(&json, report->hosts, was_run(report));
    if (report->collective)
        write_collective(&json, report->collective);
    if (report->into)
        message_json_put_object(&json, "into", &report->into->base, 0);
    if (tensors) {
        json_put_open(&json, "tensors", '[');
        for (size_t i = 0; i < n_tensors; i++)
            write_tensor(&json, &tensors[i], with_digests);
        json_write_close(&json, ']');
    }
    json_write_close(&json, '}');
    return json.text;
}
