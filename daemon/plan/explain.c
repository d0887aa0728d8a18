/* Writes the plan in blocks: what is asked for, how it was decided, the candidates, the files, the group.
 *
 * Numbers are rounded for people and aligned to the right; JSON has them exactly. Columns a candidate
 * has nothing to say about show "-". Long lists end with "... and N more". */
#include "plan/explain.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "plan/cost.h"
#include "plan/plan.h"

enum { MAX_FILE_LINES = 20, NUMBER_CHARS = 32, LEAST_NAME_WIDTH = 21, MOST_NAME_WIDTH = 48 };

struct page {
    const struct plan *plan;
    const struct mapping *mapping;
    const struct plan_facts *facts;
    FILE *out;
};

/* "12,345" */
static const char *people_count(uint64_t count, char out[NUMBER_CHARS])
{
    char digits[NUMBER_CHARS];
    int n = snprintf(digits, sizeof digits, "%" PRIu64, count);
    char *to = out;
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0)
            *to++ = ',';
        *to++ = digits[i];
    }
    *to = 0;
    return out;
}

/* "0.18 ms", "47.2 ms", "1.03 s" */
static const char *people_ms(double ms, char out[NUMBER_CHARS])
{
    bool seconds = ms >= 999.5;
    double value = seconds ? ms / 1000 : ms;
    snprintf(out, NUMBER_CHARS, "%.*f %s", value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value, seconds ? "s" : "ms");
    return out;
}

static const char *plural_ending(uint64_t count)
{
    return count == 1 ? "" : "s";
}

static void write_view(const struct page *page)
{
    char count[NUMBER_CHARS], size[TEXT_SIZE_CHARS];
    size_t n_tensors = page->mapping->n_tensors;
    fprintf(page->out, "view      %s tensor%s, %s", people_count(n_tensors, count), plural_ending(n_tensors),
            text_people_bytes(page->mapping->view_bytes, size));
    const char *separator = ": ";
    for (int kind = 0; kind <= JOB_EMPTY; kind++) {
        if (page->plan->n_jobs[kind] == 0)
            continue;
        fprintf(page->out, "%s%s %s", separator, people_count(page->plan->n_jobs[kind], count),
                job_kind_name((enum job_kind)kind));
        separator = ", ";
    }
    fputc('\n', page->out);
}

static void write_source(const struct page *page)
{
    const struct source_caps *caps = &page->facts->source;
    char gap[TEXT_SIZE_CHARS], request[TEXT_SIZE_CHARS];
    if (caps->reads_are_requests) {
        fprintf(page->out,
                "source    network%s%s, %" PRIu32 " requests of up to %s at once; gaps below %s cost less than a request\n",
                *caps->filesystem_type ? " " : "", caps->filesystem_type,
                remote_parallel_requests(caps, &page->facts->speed), text_people_bytes(remote_block_bytes(caps), request),
                text_people_bytes(page->plan->merge_gap_bytes, gap));
        return;
    }
    fprintf(page->out, "source    %s%s%s, %.0f%% in the page cache; gaps below %s cost less than a request\n",
            caps->filesystem == SOURCE_LOCAL ? "local" : "network", *caps->filesystem_type ? " " : "", caps->filesystem_type,
            page->facts->cached_share * 100, text_people_bytes(page->plan->merge_gap_bytes, gap));
}

/* A load fails then even without other loads, except when files are handed out as they are. */
static void write_memory(const struct page *page)
{
    uint64_t needed = page->mapping->replica_bytes, budget = page->facts->host_budget_bytes;
    char need[TEXT_SIZE_CHARS], have[TEXT_SIZE_CHARS];
    if (!budget || needed <= budget || (page->plan->mapped.is_known && page->plan->mapped.is_possible))
        return;
    fprintf(page->out,
            "memory    %s, more than all of the budget, %s: this view can never be loaded; load slices of it, or "
            "raise memory.host_budget\n",
            text_people_bytes(needed, need), text_people_bytes(budget, have));
}

static void write_gate(const struct page *page, enum cost_gate gate, const char *local, const char *generic,
                       bool local_loses)
{
    static const char *const names[] = {[COST_GATE_TIME] = "time", [COST_GATE_SOURCE_BYTES] = "source_bytes"};
    bool asked = page->facts->strategy->cost_gate == gate;
    fprintf(page->out, "%-8s%s %-12s  local %s, generic %s -> %s\n", asked ? "gate" : "", asked ? ">" : " ", names[gate],
            local, generic, local_loses ? "generic" : "local");
}

static void write_gates(const struct page *page)
{
    const struct candidate *generic = &page->plan->candidates[EXECUTOR_GENERIC_BYTE_RANGE];
    const struct candidate *local = &page->plan->candidates[EXECUTOR_TENSOR_BATCHED_LOCAL];
    char a[NUMBER_CHARS], b[NUMBER_CHARS];
    if (!local->eligible) {
        fprintf(page->out, "gate      not asked: local is not eligible (%s)\n", local->reason.text);
        return;
    }
    write_gate(page, COST_GATE_TIME, people_ms(local->estimated_ms, a), people_ms(generic->estimated_ms, b),
               local->estimated_ms > generic->estimated_ms);
    write_gate(page, COST_GATE_SOURCE_BYTES, text_people_bytes(local->read_bytes, a),
               text_people_bytes(generic->read_bytes, b), local->read_bytes > generic->read_bytes);
}

static void write_candidate(const struct page *page, const struct candidate *candidate)
{
    char needs[TEXT_SIZE_CHARS], reads[TEXT_SIZE_CHARS] = "-", temporary[TEXT_SIZE_CHARS] = "-";
    char requests[NUMBER_CHARS] = "-", estimate[NUMBER_CHARS] = "-";
    text_people_bytes(candidate->unique_source_bytes, needs);
    if (candidate->requests) {
        text_people_bytes(candidate->read_bytes, reads);
        text_people_bytes(candidate->peak_temporary_bytes, temporary);
        people_count(candidate->requests, requests);
    }
    if (candidate->estimated_ms > 0)
        people_ms(candidate->estimated_ms, estimate);
    fprintf(page->out, "%c %-*s  %9s  %9s  %9s  %9s  %9s  %s\n", candidate->executor == page->plan->executor ? '>' : ' ',
            LEAST_NAME_WIDTH, executor_names[candidate->executor], needs, reads, requests, temporary, estimate,
            candidate->reason.text);
}

static const char *landing(const struct mapping *mapping, const struct plan_facts *facts)
{
    if (mapping->n_operations)
        return "converted";
    if (facts->source.lands_in_place && facts->device.direct_segments)
        return "direct";
    if (!facts->device.direct_segments || facts->cached_share <= 0)
        return "staged";
    return facts->cached_share >= 1 ? "direct" : "direct where cached, else staged";
}

struct file_line {
    const char *name; /* escaped */
    uint64_t extents, read_bytes, wanted_bytes, span_bytes;
};

static struct file_line measure_file(const struct page *page, size_t file, char name[TEXT_NAME_CHARS])
{
    const struct plan *plan = page->plan;
    const char *raw = page->mapping->artifact->source->files[file].name;
    struct file_line line = {.name = text_escape(raw, strlen(raw), name)};
    for (size_t i = plan->file_first[file]; i < plan->file_first[file + 1]; i++) {
        line.extents += plan->steps[i].count;
        line.read_bytes += plan->steps[i].count * plan->steps[i].bytes;
    }
    struct mapping_reads reads = mapping_reads(page->mapping, file);
    for (size_t i = 0; i < reads.n; i++)
        line.wanted_bytes += transfer_bytes(&reads.list[i]);
    if (line.extents) {
        const struct plan_step *last = &plan->steps[plan->file_first[file + 1] - 1];
        line.span_bytes =
            last->offset + (last->count - 1) * last->stride + last->bytes - plan->steps[plan->file_first[file]].offset;
    }
    return line;
}

static void write_files(const struct page *page)
{
    size_t widest = LEAST_NAME_WIDTH;
    char escaped[TEXT_NAME_CHARS];
    for (size_t i = 0; i < page->mapping->artifact->source->n_files; i++) {
        const char *raw = page->mapping->artifact->source->files[i].name;
        size_t length = strlen(text_escape(raw, strlen(raw), escaped));
        widest = length > widest ? length : widest;
    }
    int width = widest > MOST_NAME_WIDTH ? MOST_NAME_WIDTH : (int)widest;
    size_t n_files = page->mapping->artifact->source->n_files, n_lines = 0;
    fprintf(page->out, "\n  %-*s  %9s  %9s  %9s  %9s  %s\n", width, "file", "extents", "reads", "wanted", "span", "lands");
    for (size_t i = 0; i < n_files; i++) {
        if (page->plan->file_first[i] == page->plan->file_first[i + 1])
            continue;
        if (++n_lines > MAX_FILE_LINES)
            continue;
        char name[TEXT_NAME_CHARS];
        struct file_line line = measure_file(page, i, name);
        char extents[NUMBER_CHARS], reads[TEXT_SIZE_CHARS], wanted[TEXT_SIZE_CHARS], span[TEXT_SIZE_CHARS];
        fprintf(page->out, "  %-*s  %9s  %9s  %9s  %9s  %s\n", width, line.name, people_count(line.extents, extents),
                text_people_bytes(line.read_bytes, reads), text_people_bytes(line.wanted_bytes, wanted),
                text_people_bytes(line.span_bytes, span), landing(page->mapping, page->facts));
    }
    if (n_lines > MAX_FILE_LINES)
        fprintf(page->out, "  ... and %zu more file%s\n", n_lines - MAX_FILE_LINES, plural_ending(n_lines - MAX_FILE_LINES));
    if (n_lines == 0)
        fputs("  nothing to read: every tensor of the view is empty\n", page->out);
}

enum { MAX_OWNER_LINES = 16, MAX_BATCH_LINES = 20 };

static void write_summary(const struct plan *plan, FILE *out)
{
    const struct collective_plan *group = plan->group;
    char once[TEXT_SIZE_CHARS], all[TEXT_SIZE_CHARS], saved[TEXT_SIZE_CHARS], peers[TEXT_SIZE_CHARS], peak[TEXT_SIZE_CHARS];
    char residual[TEXT_SIZE_CHARS];
    fprintf(out, "          reads %s once for all instead of %s (saves %s), %s to peers\n",
            text_people_bytes(group->numbers.unique_source_bytes, once), text_people_bytes(group->numbers.needed_bytes, all),
            text_people_bytes(group->numbers.dedup_saving_bytes, saved),
            text_people_bytes(group->numbers.peer_transfer_bytes, peers));
    fprintf(out, "          %zu batches, at most %" PRIu64 " in flight, %s temporary; owners by %s, skew %.2f\n",
            group->n_batches, group->max_inflight_batches,
            text_people_bytes(plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE].peak_temporary_bytes, peak),
            group->is_split ? "stretches of files" : "files", group->owner_skew);
    if (group->numbers.residual_bytes)
        fprintf(out, "          residual: %s in patterns that do not line up, beside the batches\n",
                text_people_bytes(group->numbers.residual_bytes, residual));
}

static const char *rate(double bytes_per_ns, char out[TEXT_SIZE_CHARS])
{
    return text_people_rate(bytes_per_ns * 1e9, out);
}

/* Nothing where hosts are off: then there is no choice. */
static void write_hosts(const struct page *page)
{
    const struct hosts_choice *choice = &page->plan->hosts;
    char estimate[NUMBER_CHARS], peers[TEXT_SIZE_CHARS];
    if (!page->facts->hosts.is_on)
        return;
    fprintf(page->out, "\n  %-*s  %9s  %s\n", LEAST_NAME_WIDTH, "hosts", "estimate", "reason");
    for (enum hosts_way way = 0; way < HOSTS_WAYS; way++) {
        const struct hosts_candidate *candidate = &choice->candidates[way];
        fprintf(page->out, "%c %-*s  %9s  %s\n", choice->way == way ? '>' : ' ', LEAST_NAME_WIDTH, hosts_way_names[way],
                candidate->estimated_ms > 0 ? people_ms(candidate->estimated_ms, estimate) : "-", candidate->reason.text);
    }
    fprintf(page->out, "          %" PRIu32 " host%s alive, %s between them%s\n", choice->alive,
            plural_ending(choice->alive), rate(hosts_peers_rate(&page->facts->hosts), peers),
            page->facts->hosts.peers > 0 ? "" : " (assumed)");
}

/* Every transport that there is, by the formula of docs/groups.md; the chosen one is marked. */
static void write_transports(const struct transport_choice *choice, FILE *out)
{
    char staging[TEXT_SIZE_CHARS], first[TEXT_SIZE_CHARS], second[TEXT_SIZE_CHARS];
    const struct transport_demand *demand = &choice->demand;
    double lands = demand->unique_bytes ? (double)demand->landed_bytes / (double)demand->unique_bytes : 0;
    if (choice->n_options == 0)
        return;
    fprintf(out, "\n  %-21s  %9s%s\n", "transport", "estimate",
            choice->is_forced ? "  as engine.collective_transport says" : "");
    for (size_t i = 0; i < choice->n_options; i++) {
        const struct transport_option *option = &choice->options[i];
        bool is_chosen = choice->ops && strcmp(choice->ops->name, option->name) == 0;
        bool can = option->problem == REASON_ELIGIBLE;
        fprintf(out, "%c %-21s  %6.4g ms%s%s\n", is_chosen ? '>' : ' ', option->name, option->ms, can ? "" : "  ",
                can ? "" : reason_rows[option->problem].name + sizeof "transport_" - 1);
    }
    if (!choice->ops)
        fprintf(out, "          none will do: %s\n", choice->problem.text);
    fprintf(out, "          source %s, memory %s, each byte lands %.2f times", rate(choice->rates.source, first),
            rate(choice->rates.memory, second), lands);
    if (demand->n_devices)
        fprintf(out, "; %" PRIu32 " GPUs at %s each, %s between them", demand->n_devices, rate(choice->rates.link, first),
                rate(choice->rates.peer, second));
    fputc('\n', out);
    if (choice->staging_bytes)
        fprintf(out, "          %s of each GPU's budget to stage in\n", text_people_bytes(choice->staging_bytes, staging));
}

static void write_batches(const struct collective_plan *group, FILE *out)
{
    char reads[TEXT_SIZE_CHARS], inner[TEXT_SIZE_CHARS], peers[TEXT_SIZE_CHARS];
    fprintf(out, "\n  %-21s  %9s  %9s  %9s  %9s\n", "batch", "owner", "reads", "dim1", "to peers");
    for (size_t i = 0; i < group->n_batches && i < MAX_BATCH_LINES; i++) {
        const struct collective_batch *batch = &group->batches[i];
        fprintf(out, "  %-21zu  %9" PRIu32 "  %9s  %9s  %9s\n", i, batch->owner, text_people_bytes(batch->bytes, reads),
                text_people_bytes(batch->inner_bytes, inner), text_people_bytes(batch->peer_bytes, peers));
    }
    if (group->n_batches > MAX_BATCH_LINES)
        fprintf(out, "  ... and %zu more\n", group->n_batches - MAX_BATCH_LINES);
}

/* Nothing when the request named no group. */
void explain_group(const struct plan *plan, const struct plan_facts *facts, FILE *out)
{
    char id[TEXT_NAME_CHARS];
    if (!plan->group_id)
        return;
    fprintf(out, "\ngroup     %s: rank %" PRIu32 " of %" PRIu32, text_escape(plan->group_id, strlen(plan->group_id), id),
            plan->rank, plan->world_size);
    if (!plan->group) {
        /* an explain does not wait as a load would */
        char timeout[TEXT_SIZE_CHARS];
        fprintf(out, "; the ranks did not meet, this is one rank's plan\n");
        if (facts->group_problem.kind != REASON_ELIGIBLE)
            fprintf(out, "          %s; a load waits up to %s for the others\n", facts->group_problem.text,
                    text_format_duration_ms(facts->strategy->owner_file_collective_group_assemble_timeout_ms, timeout));
        return;
    }
    fputc('\n', out);
    write_summary(plan, out);
    write_transports(&plan->transport, out);
    const struct collective_plan *group = plan->group;
    char reads[TEXT_SIZE_CHARS], peers[TEXT_SIZE_CHARS];
    fprintf(out, "\n  %-21s  %9s  %9s  %9s\n", "owner", "reads", "batches", "to peers");
    for (uint32_t rank = 0; rank < group->world_size && rank < MAX_OWNER_LINES; rank++) {
        const struct collective_owner *owner = &group->owners[rank];
        fprintf(out, "  rank %-16" PRIu32 "  %9s  %9zu  %9s\n", rank, text_people_bytes(owner->bytes, reads),
                owner->n_batches, text_people_bytes(owner->peer_bytes, peers));
    }
    if (group->world_size > MAX_OWNER_LINES)
        fprintf(out, "  ... and %" PRIu32 " more\n", group->world_size - MAX_OWNER_LINES);
    if (plan->executor == EXECUTOR_OWNER_FILE_COLLECTIVE)
        write_batches(plan->group, out);
}

char *explain_text(const struct plan *plan, const struct mapping *mapping, const struct plan_facts *facts)
{
    char *text = NULL;
    size_t length = 0;
    struct page page = {.plan = plan, .mapping = mapping, .facts = facts, .out = open_memstream(&text, &length)};
    if (!page.out)
        return memory_copy_text("");
    const struct source *source = page.mapping->artifact->source;
    uint64_t bytes = 0;
    for (size_t i = 0; i < source->n_files; i++)
        bytes += source->files[i].size_bytes;
    const char *reference = page.mapping->artifact->reference;
    char name[TEXT_NAME_CHARS], size[TEXT_SIZE_CHARS];
    fprintf(page.out, "artifact  %s (%zu file%s, %s)\n", text_escape(reference, strlen(reference), name), source->n_files,
            plural_ending(source->n_files), text_people_bytes(bytes, size));
    write_view(&page);
    write_source(&page);
    /* of a store it is always the version */
    const struct artifact *artifact = page.mapping->artifact;
    bool has_reason = artifact->changes.reason && artifact->changes.reason[0];
    if (artifact->changes.by != CHANGES_BY_VERSION)
        fprintf(page.out, "changes   noticed by %s%s%s\n",
                artifact->changes.by == CHANGES_RACY ? "racy timestamps, so nothing is kept"
                                                     : change_detector_name(artifact->changes.by),
                has_reason ? ": " : "", has_reason ? artifact->changes.reason : "");
    const struct mapped_choice *mapped = &page.plan->mapped;
    char estimate[NUMBER_CHARS];
    if (mapped->is_known && mapped->is_possible)
        fprintf(page.out, "mapped    possible, %s; about %s when every page is touched -> auto %s\n",
                mapped->proof == IMMUTABLE_BY_NOTHING ? "of no file" : immutability_name(mapped->proof),
                people_ms(mapped->estimated_ms, estimate), mapped->is_quicker ? "maps" : "copies");
    else if (mapped->is_known)
        fprintf(page.out, "mapped    not possible: %s\n", mapped->reason);
    write_memory(&page);
    fprintf(page.out, "executor  %s (%s)\n", executor_names[plan->executor], plan->selection.text);
    write_gates(&page);
    fprintf(page.out, "\n  %-*s  %9s  %9s  %9s  %9s  %9s  %s\n", LEAST_NAME_WIDTH, "candidate", "needs", "reads", "requests",
            "temporary", "estimate", "reason");
    for (size_t i = 0; i < EXECUTOR_COUNT; i++)
        write_candidate(&page, &page.plan->candidates[i]);
    write_hosts(&page);
    write_files(&page);
    explain_group(plan, facts, page.out);
    fclose(page.out);
    return text;
}
