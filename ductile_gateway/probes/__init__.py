"""How the gateway is, over HTTP: for balancers, kubelets and Prometheus."""
