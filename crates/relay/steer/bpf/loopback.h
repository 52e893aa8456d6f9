/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Delivery by the loopback link. Rules for what comes in for a host (INPUT, reverse path filters) are not meant for
 * connections that it forwards, and would drop those that are split; what comes in by the loopback they let in. */
#pragma once

#include "leg.h"
#include "packet.h"

#define LOOPBACK 1
#define ETH_ALEN 6
#define ETH_HLEN 14
/* Where in an Ethernet header the type is. */
#define ETH_TYPE 12
/* Enough of a packet to tell that it is where its frame would be. */
#define BEGINNING 16

/* Whether the packet came in by a link without a link layer: then both headers begin at the same place. */
static __always_inline bool is_bare(struct __sk_buff *skb)
{
	__u64 frame[BEGINNING / 8], packet[BEGINNING / 8];

	if (bpf_skb_load_bytes_relative(skb, 0, frame, BEGINNING, BPF_HDR_START_MAC))
		return true;
	if (bpf_skb_load_bytes_relative(skb, 0, packet, BEGINNING, BPF_HDR_START_NET))
		return false;
	return frame[0] == packet[0] && frame[1] == packet[1];
}

/* Has a packet that is marked for delivery come in once more, by the loopback link. */
static __always_inline int by_loopback(struct __sk_buff *skb)
{
	__u8 nobody[ETH_ALEN] = {};
	__be16 type;

	if (is_bare(skb)) {
		type = skb->protocol;
		if (bpf_skb_change_head(skb, ETH_HLEN, 0) ||
		    bpf_skb_store_bytes(skb, ETH_TYPE, &type, sizeof(type), 0))
			return GO_ON;
	} else {
		if (skb->vlan_present && bpf_skb_vlan_pop(skb))
			return GO_ON;
		/* Tags below that one. */
		if (skb->protocol != bpf_htons(ETH_P_IP) && skb->protocol != bpf_htons(ETH_P_IPV6))
			return GO_ON;
		/* To whom the loopback link's frames are. */
		if (bpf_skb_store_bytes(skb, 0, nobody, sizeof(nobody), 0))
			return GO_ON;
	}
	return bpf_redirect(LOOPBACK, BPF_F_INGRESS);
}
