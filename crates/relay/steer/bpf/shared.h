/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* All that Rust's side of the programs is generated from. */
#pragma once

#include "first_window.h"
#include "intf.h"
