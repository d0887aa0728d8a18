/* Two ways to do it, told apart by what a transport is capable of: the daemon copies what it has read to every rank, over
 * each device's own link; or a device gets its owner's share once, and the devices pass it on between themselves. All parts
 * of either way overlap, so it takes as long as its slowest part. */
#include "plan/transport_choice.h"

#include <string.h>

#include "base/clock.h"
#include "plan/plan.h"
#include "plan/cost.h"

/* Nothing tells us these before a load has run. Both are on the low side: PCI Express 4.0 x16, and NVLink of a few GPUs. */
static const double LINK_BYTES_PER_NS = 25, PEER_BYTES_PER_NS = 150;

static double part_ns(double bytes, double bytes_per_ns)
{
    return bytes_per_ns > 0 ? bytes / bytes_per_ns : 0;
}

static double larger_ns(double a, double b)
{
    return a > b ? a : b;
}

/* Everything read is written to memory once and fetched from there for every rank that needs it. */
static double fan_out_ns(const struct transport_demand *demand, const struct transport_rates *rates)
{
    double unique = (double)demand->unique_bytes, landed = (double)demand->landed_bytes;
    double links = demand->n_devices ? part_ns(landed, rates->link * demand->n_devices) : 0;
    return larger_ns(part_ns(unique, rates->source), larger_ns(links, part_ns(unique + landed, rates->memory)));
}

/* Memory and links see every byte once; what other ranks need goes from device to device. */
static double device_links_ns(const struct transport_demand *demand, const struct transport_rates *rates)
{
    double unique = (double)demand->unique_bytes, n = demand->n_devices ? demand->n_devices : 1;
    double passed_on = demand->landed_bytes > demand->unique_bytes ? (double)demand->landed_bytes - unique : 0;
    double to_devices = larger_ns(part_ns(unique, rates->link * n), part_ns(2 * unique, rates->memory));
    return larger_ns(part_ns(unique, rates->source), larger_ns(to_devices, part_ns(passed_on, rates->peer * n)));
}

/* Of what each device may have, by the group's budget. */
static uint64_t staging_share(const struct transport_demand *demand)
{
    uint64_t host = demand->host_staging_bytes, budget = demand->peak_budget_bytes;
    return budget > host ? (budget - host) / (demand->n_devices ? demand->n_devices : 1) : 0;
}

/* Two batches in turn, and a sixteenth for ends of memory that no piece fits into; less where there is no room for so much:
 * then batches are passed on in parts. */
static uint64_t staging_bytes(const struct transport_demand *demand)
{
    uint64_t wanted = 2 * (demand->staged_bytes + demand->staged_bytes / 16), unit = TRANSPORT_STAGING_UNIT;
    uint64_t share = staging_share(demand), room = demand->device_room_bytes;
    uint64_t n_wanted = (wanted + unit - 1) / unit, n_most = (share < room ? share : room) / unit;
    return unit * (n_wanted < n_most ? n_wanted : n_most);
}

static enum reason_kind refuse_transport(const struct transport_caps *caps, const struct transport_demand *demand)
{
    if (!caps->host_memory && demand->n_on_devices < demand->n_memories)
        return REASON_TRANSPORT_NEEDS_GPUS;
    if (caps->device_links && demand->n_devices < demand->n_memories)
        return REASON_TRANSPORT_NEEDS_A_GPU_PER_RANK;
    if (!caps->stages_batches)
        return REASON_ELIGIBLE;
    if (demand->staged_bytes > demand->peak_budget_bytes || staging_share(demand) < TRANSPORT_STAGING_UNIT)
        return REASON_TRANSPORT_PEAK_BUDGET;
    return demand->device_room_bytes < TRANSPORT_STAGING_UNIT ? REASON_TRANSPORT_DEVICE_BUDGET : REASON_ELIGIBLE;
}

static const struct transport_ops *find_wished(const struct transport_supply *supply)
{
    for (size_t i = 0; i < supply->n; i++)
        if (strcmp(supply->list[i]->name, collective_transport_name(supply->wish)) == 0)
            return supply->list[i];
    return NULL;
}

struct reason transport_choice_refuse(const struct transport_supply *supply, bool on_device)
{
    const struct transport_ops *ops = find_wished(supply);
    if (supply->wish == COLLECTIVE_TRANSPORT_AUTO || (ops && (ops->caps.host_memory || on_device)))
        return reason_of(REASON_ELIGIBLE);
    return reason_with(ops ? REASON_TRANSPORT_NEEDS_GPUS : REASON_TRANSPORT_UNAVAILABLE, "%s",
                       collective_transport_name(supply->wish));
}

struct transport_rates transport_choice_rates(const struct plan_facts *facts)
{
    struct cost_constants costs = *facts->costs;
    if (facts->source.tells_speed)
        remote_set_costs(&facts->source, &facts->speed, &costs);
    double cached = facts->cached_share;
    double ns_per_byte = part_ns(cached, costs.cached.bytes_per_ns) + part_ns(1 - cached, costs.uncached.bytes_per_ns);
    return (struct transport_rates){.source = ns_per_byte > 0 ? 1 / ns_per_byte : 0,
                                    .memory = 2 * costs.copy_bytes_per_ns, /* a copy reads and writes */
                                    .link = LINK_BYTES_PER_NS,
                                    .peer = PEER_BYTES_PER_NS};
}

struct transport_choice transport_choice_make(const struct transport_supply *supply, const struct transport_demand *demand,
                                              const struct transport_rates *rates)
{
    struct transport_choice choice = {
        .is_forced = supply->wish != COLLECTIVE_TRANSPORT_AUTO, .demand = *demand, .rates = *rates};
    const struct transport_ops *wished = choice.is_forced ? find_wished(supply) : NULL;
    enum reason_kind problem = REASON_TRANSPORT_UNAVAILABLE;
    double best_ms = 0;
    for (size_t i = 0; i < supply->n; i++) {
        const struct transport_caps *caps = &supply->list[i]->caps;
        double ns = caps->device_links ? device_links_ns(demand, rates) : fan_out_ns(demand, rates);
        struct transport_option option = {supply->list[i]->name, ns / NS_PER_MS, refuse_transport(caps, demand)};
        choice.options[choice.n_options++] = option;
        if (choice.is_forced && supply->list[i] != wished)
            continue;
        problem = option.problem != REASON_ELIGIBLE ? option.problem : problem;
        if (option.problem != REASON_ELIGIBLE || (choice.ops && option.ms >= best_ms))
            continue;
        choice.ops = supply->list[i];
        choice.staging_bytes = caps->stages_batches ? staging_bytes(demand) : 0;
        best_ms = option.ms;
    }
    if (!choice.ops)
        choice.problem = reason_with(problem, "%s", collective_transport_name(supply->wish));
    return choice;
}
