/* Hosts that load one model at once, on a simulated clock and network. Who owns a block, who is late and who is next decide
 * hosts/shared_block.c and hosts/election.c; the rest is a model: links that send one block after the other. Deterministic.
 *
 *     store --(each host's link, and all together)--> owner's cache --(sender's link, receiver's link)--> worker of a host */
#ifndef TESTS_SUPPORT_HOST_SIMULATION_H
#define TESTS_SUPPORT_HOST_SIMULATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum simulated_fault_kind {
    FAULT_DIES,   /* its peers' connections are reset */
    FAULT_SILENT, /* stopped, or cut off: nothing it sends arrives any more */
    FAULT_SLOW,   /* from the start on, an owner that reads and sends at `factor` of its rate */
};
struct simulated_fault {
    enum simulated_fault_kind kind;
    size_t host;
    double at_s, factor;
};

struct simulation {
    size_t n_hosts, hosts_per_copy; /* each of these needs another part of the model */
    double model_bytes, block_bytes;
    double store_bytes_per_s;       /* of each host */
    double store_total_bytes_per_s; /* of all of them; 0 = no limit */
    double fabric_bytes_per_s;      /* of each host, either way */
    unsigned workers;               /* requests of a host at once */
    unsigned ahead;                 /* blocks that an owner reads at once before it is asked for them; 0 = it does not */
    const struct simulated_fault *faults;
    size_t n_faults;
};

struct simulation_result {
    size_t n_ready;      /* hosts that have everything */
    double last_ready_s; /* the last one of them */
    double store_bytes, hedged_bytes, peer_bytes;
};
struct simulation_result simulate_hosts(const struct simulation *simulation);

/* What the planner (plan/hosts_choice.c) estimates for owner_peers, or B / A if that is more; 0 = it would not choose owner_peers. */
double simulation_formula_s(const struct simulation *simulation);

#endif
