/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The steering program's parser on any packet: it reads only what is there, and says nothing of a packet that the
 * packet does not hold. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

#include "packet.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	static const __u16 ethertypes[] = { ETH_P_IP, ETH_P_IPV6, ETH_P_8021Q, ETH_P_8021AD };
	struct __sk_buff skb = {};
	struct packet packet;
	unsigned char *copy;

	if (size < 2)
		return 0;
	skb.protocol = bpf_htons(ethertypes[bytes[0] % 4]);
	skb.len = size - 2;
	/* A part of it may be in other pieces. */
	packet_linear = bytes[1] & 1 ? skb.len : skb.len * (bytes[1] >> 1) / 128;
	/* Of its own, so that a byte too far is seen. */
	copy = malloc(skb.len ? skb.len : 1);
	memcpy(copy, bytes + 2, skb.len);
	packet_bytes = copy;
	parse(&skb, &packet);
	if (packet.kind == TCP) {
		assert(packet.version == 4 || packet.version == 6);
		assert(packet.transport >= packet.start + (packet.version == 4 ? 20 : 40));
		assert(packet.transport + 20 <= skb.len);
		assert(packet.payload <= 65535 + 40 || !packet.end);
		if (opens(&packet)) {
			assert(packet.end <= skb.len);
			is_signed(&skb, &packet);
		}
	}
	free(copy);
	return 0;
}
