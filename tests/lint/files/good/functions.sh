# sourced by the job scripts
setup_aws() {
  export FI_PROVIDER=efa
  export NCCL_SOCKET_IFNAME=^docker,lo,veth
}
setup_local() {
  export NCCL_SOCKET_IFNAME=lo
  export NCCL_IB_DISABLE=1
}
[[ -n "${EFA:-}" ]] && setup_aws || setup_local
if [ "$SLURM_PROCID" -eq 0 ]; then
  export NCCL_DEBUG=INFO   # one log is enough
fi
[ -n "$DEBUG" ] && export NCCL_DEBUG=TRACE
export NCCL_IB_HCA=$(ibdev2netdev | awk '/Up/ {print $1}' | paste -sd,)
export NCCL_TOPO_FILE="$HOME/topo/$(hostname -s).xml"
(
  export NCCL_DEBUG=WARN
  ./probe
)
export NCCL_HOME=/opt/nccl
export LD_LIBRARY_PATH=$NCCL_HOME/lib:$LD_LIBRARY_PATH
(( n = 1 << 20 ))
cat > /tmp/x.txt << "END"
export NCCL_DEBUG=LOUD
END
while read -r line; do case $line in NCCL_*) echo "$line";; esac; done < list
