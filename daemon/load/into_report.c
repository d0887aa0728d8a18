#include "load/into_report.h"

bool into_report_make(const struct load_result *result, struct into_report *report)
{
    const struct mapping *mapping = result->mapping;
    const struct plan *plan = result->plan;
    const struct run *run = result->replica ? result->replica->run : NULL;
    if (!mapping->has_targets)
        return false;
    *report = (struct into_report){
        .collective_handled = plan->executor == EXECUTOR_OWNER_FILE_COLLECTIVE,
        .direct_write_supported = result->device->caps.direct_segments && mapping->n_operations == 0,
        .source_ordered = plan->executor != EXECUTOR_GENERIC_BYTE_RANGE,
        .dominant_executor = executor_names[plan->executor],
        /* a run that has ended well has placed every byte of the view: see check_account() */
        .committed_bytes = mapping->view_bytes + (run ? run_report(run)->filled_bytes : mapping->fill_bytes),
        .fallback_bytes = plan->residual_bytes};
    return true;
}
