/* The simulation of tests/support/host_simulation.h beside the formula of docs/hosts.md, as JSON lines: hosts that load one model of
 * 1.4 TB, of which each needs half, 100 Gbit/s from the store and 400 Gbit/s between hosts.
 * A thousand hosts load 35 GB. */
#include <stdio.h>

#include "tests/support/host_simulation.h"

#define GBIT (1e9 / 8)

int main(void)
{
    static const struct {
        size_t hosts;
        double model_bytes; /* less for a thousand hosts: a simulation takes 20 s */
    } sizes[] = {{4, 1.4e12}, {8, 1.4e12}, {64, 1.4e12}, {1000, 3.5e10}};
    static const struct {
        const char *name;
        struct simulated_fault fault;
        bool is_group; /* owners know what others need, and read it ahead, as many blocks at once as their own */
    } cases[] = {
        {"plain", {FAULT_SLOW, 0, 0, 1}, false},
        {"a group", {FAULT_SLOW, 0, 0, 1}, true},
        {"one at a tenth", {FAULT_SLOW, 1, 0, 0.1}, false},
        {"one dies", {FAULT_DIES, 1, 0, 0}, false},
        {"one falls silent", {FAULT_SILENT, 1, 0, 0}, false},
    };
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
            struct simulated_fault fault = cases[c].fault;
            struct simulation simulation = {.n_hosts = sizes[s].hosts,
                                            .hosts_per_copy = 2,
                                            .model_bytes = sizes[s].model_bytes,
                                            .block_bytes = 4 << 20,
                                            .store_bytes_per_s = 100 * GBIT,
                                            .fabric_bytes_per_s = 400 * GBIT,
                                            .workers = 64,
                                            .ahead = cases[c].is_group ? 32 : 0,
                                            .faults = &fault,
                                            .n_faults = 1};
            double formula_s = simulation_formula_s(&simulation);
            fault.at_s = formula_s / 3;
            struct simulation_result result = simulate_hosts(&simulation);
            printf("{\"hosts\": %zu, \"case\": \"%s\", \"formula_s\": %.3f, \"ready_s\": %.3f, \"ready\": %zu, "
                   "\"store\": %.4f, \"hedged\": %.4f}\n",
                   sizes[s].hosts, cases[c].name, formula_s, result.last_ready_s, result.n_ready,
                   result.store_bytes / simulation.model_bytes, result.hedged_bytes / simulation.model_bytes);
            fflush(stdout);
        }
}
