/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* See bpf_helpers.h. */
#pragma once
