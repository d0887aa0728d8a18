/* The simulation of tests/support/host_simulation.h beside the formula of docs/hosts.md, as JSON lines: hosts that load one model of
 * 1.4 TB, of which each needs half, 100 Gbit/s from the store and 400 Gbit/s between hosts.
 *
 *   hosts_model [BLOCK_MIB]        real ones have 4; larger ones take less time, and few of them at once wait more for each other */
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/host_simulation.h"

#define GBIT (1e9 / 8)

int main(int argc, char **argv)
{
    static const size_t sizes[] = {4, 8, 64};
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
    double block_mib = argc > 1 ? strtod(argv[1], NULL) : 4;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
            struct simulated_fault fault = cases[c].fault;
            struct simulation simulation = {.n_hosts = sizes[s],
                                            .hosts_per_copy = 2,
                                            .model_bytes = 1.4e12,
                                            .block_bytes = block_mib * (1 << 20),
                                            .store_bytes_per_s = 100 * GBIT,
                                            .fabric_bytes_per_s = 400 * GBIT,
                                            .workers = (unsigned)(256 / block_mib),
                                            .ahead = cases[c].is_group ? (unsigned)(128 / block_mib) : 0,
                                            .faults = &fault,
                                            .n_faults = 1};
            double formula_s = simulation_formula_s(&simulation);
            fault.at_s = formula_s / 3;
            struct simulation_result result = simulate_hosts(&simulation);
            printf("{\"hosts\": %zu, \"case\": \"%s\", \"formula_s\": %.3f, \"ready_s\": %.3f, \"ready\": %zu, "
                   "\"store\": %.4f, \"hedged\": %.4f}\n",
                   sizes[s], cases[c].name, formula_s, result.last_ready_s, result.n_ready,
                   result.store_bytes / simulation.model_bytes, result.hedged_bytes / simulation.model_bytes);
            fflush(stdout);
        }
}
