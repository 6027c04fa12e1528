#include "cli_infer.h"

bool infer_take_option(infer_t *infer, int code)
{
    static const char *const splits[] = {"train", "valid", "test", "all", NULL};
    switch (code) {
    case INFER_OPTION_SPLIT:
        infer->split = cli_parse_word(&infer->common, "--split", splits);
        return infer->split >= 0;
    case INFER_OPTION_WEIGHTS:
        infer->inference.weights = optarg;
        return true;
    case INFER_OPTION_VERIFY:
        infer->verify = true;
        return true;
    default:
        infer->inference.scratch = optarg;
        return true;
    }
}

bool infer_take_words(infer_t *infer, int argc, char **argv)
{
    const int words = argc - optind;
    if (words < 1 || words > 2) {
        (void)cli_wrong_use(&infer->common, "a run directory is needed, and the dataset's only "
                                            "where it has moved");
        return false;
    }
    infer->run = argv[optind];
    infer->dataset = words == 2 ? argv[optind + 1] : NULL;
    return true;
}

/* One warning that names the options that change nothing here. */
static void say_idle(const infer_t *infer, const plim_dataset_info_t *info,
                     const plim_model_t *model)
{
    const bool drawn = info->num_graphs == 0 && model->kind != PLIM_MLP;
    const bool choice = infer->chosen && !drawn;
    const bool scratch = infer->inference.scratch != NULL && !infer->inference.exact;
    if (choice || scratch)
        cli_warn("without effect here: %s%s%s",
                 !choice                  ? ""
                 : infer->inference.exact ? "--exact (no neighbours are drawn)"
                                          : "--sampled (no neighbours are drawn)",
                 choice && scratch ? ", " : "", scratch ? "--scratch (of exact passes)" : "");
}

int infer_run(infer_t *infer, infer_work_fn work, void *context)
{
    plim_run_info_t info = PLIM_RUN_INFO_INIT;
    plim_limits_t limits;
    plim_dataset_t *dataset;
    plim_job_t *job;
    bool apart = true;
    int moved = CLI_DONE;
    plim_status_t status = cli_job_start(&infer->common, &job, &limits);
    if (status != PLIM_OK)
        return cli_failed(&infer->common, status);
    status = plim_run_read(job, infer->run, &info);
    if (status == PLIM_OK) {
        if (infer->dataset == NULL) {
            infer->dataset = info.dataset;
            moved = cli_check_moved(&infer->common, infer->run, info.dataset);
        }
        apart = moved == CLI_DONE &&
                cli_check_scratch(&infer->common, infer->dataset, infer->inference.scratch);
    }
    if (status == PLIM_OK && apart)
        status = plim_dataset_open(job, infer->dataset, &dataset);
    if (status == PLIM_OK && apart) {
        if (infer->verify)
            status = plim_dataset_verify(job, dataset);
        if (status == PLIM_OK) {
            say_idle(infer, plim_dataset_info(dataset), &info.training.model);
            status = work(infer, job, dataset, &info, context);
        }
        plim_dataset_release(dataset);
    }
    cli_leave_phase();
    cli_job_end(job);
    if (moved != CLI_DONE || !apart)
        return moved != CLI_DONE ? moved : CLI_WRONG_USE;
    return status == PLIM_OK ? CLI_DONE : cli_failed(&infer->common, status);
}
