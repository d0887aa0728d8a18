/* What all ranks do together: the same text for every rank, but for the line that says which one this is. */
#include "plan/explain_group.h"

#include <inttypes.h>
#include <string.h>

#include "base/text.h"

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

static void write_owners(const struct collective_plan *group, FILE *out)
{
    char reads[TEXT_SIZE_CHARS], peers[TEXT_SIZE_CHARS];
    fprintf(out, "\n  %-21s  %9s  %9s  %9s\n", "owner", "reads", "batches", "to peers");
    for (uint32_t rank = 0; rank < group->world_size && rank < MAX_OWNER_LINES; rank++) {
        const struct collective_owner *owner = &group->owners[rank];
        fprintf(out, "  rank %-16" PRIu32 "  %9s  %9zu  %9s\n", rank, text_people_bytes(owner->bytes, reads),
                owner->n_batches, text_people_bytes(owner->peer_bytes, peers));
    }
    if (group->world_size > MAX_OWNER_LINES)
        fprintf(out, "  ... and %" PRIu32 " more\n", group->world_size - MAX_OWNER_LINES);
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

/* An explain does not wait as a load would. */
static void write_alone(const struct plan_facts *facts, FILE *out)
{
    char timeout[TEXT_SIZE_CHARS];
    fprintf(out, "; the ranks did not meet, this is one rank's plan\n");
    if (facts->group_problem.kind != REASON_ELIGIBLE)
        fprintf(out, "          %s; a load waits up to %s for the others\n", facts->group_problem.text,
                text_format_duration_ms(facts->strategy->owner_file_collective_group_assemble_timeout_ms, timeout));
}

void explain_group(const struct plan *plan, const struct plan_facts *facts, FILE *out)
{
    char id[TEXT_NAME_CHARS];
    if (!plan->group_id)
        return;
    fprintf(out, "\ngroup     %s: rank %" PRIu32 " of %" PRIu32, text_escape(plan->group_id, strlen(plan->group_id), id),
            plan->rank, plan->world_size);
    if (!plan->group) {
        write_alone(facts, out);
        return;
    }
    fputc('\n', out);
    write_summary(plan, out);
    write_transports(&plan->transport, out);
    write_owners(plan->group, out);
    if (plan->executor == EXECUTOR_OWNER_FILE_COLLECTIVE)
        write_batches(plan->group, out);
}
