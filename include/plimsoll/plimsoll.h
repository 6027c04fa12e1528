/* Includes the whole C API of Plimsoll. */
#ifndef PLIMSOLL_PLIMSOLL_H
#define PLIMSOLL_PLIMSOLL_H

#include <plimsoll/dataset.h>
#include <plimsoll/ingest.h>
#include <plimsoll/job.h>
#include <plimsoll/limit.h>
#include <plimsoll/loader.h>
#include <plimsoll/meter.h>
#include <plimsoll/peers.h>
#include <plimsoll/plan.h>
#include <plimsoll/status.h>
#include <plimsoll/train.h>
#include <plimsoll/version.h>

#endif
