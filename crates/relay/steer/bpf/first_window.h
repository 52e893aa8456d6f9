/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The option by which user space sets a connection's initial window: its level, which is nobody else's, and its name. The
 * value is a number of packets, a __u32. */
#pragma once

#define FIRST_WINDOW_LEVEL 0x4d53
#define FIRST_WINDOW 1
